"""References to secrets in the settings of clients (X2)."""

from pathlib import Path

import pytest

from odradek.config.secrets import resolved
from odradek.model import ConfigurationError


def test_references_are_replaced_and_other_texts_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "geheim}")
    (tmp_path / "secret").write_bytes(b"\xef\xbb\xbfstreng\n")
    (tmp_path / "secrets.properties").write_text("a = 1\npassword = ${env:PASSWORD}\n")
    given = {
        "sasl.password": "${env:PASSWORD}",
        "sasl.jaas.config": 'x required password="${env:PASSWORD}" other="${vault:x}";',
        "ssl.key.password": f"${{dir:{tmp_path}:secret}}",
        "ssl.keystore.password": f"${{file:{tmp_path}/secrets.properties:password}}",
    }
    made = resolved(given)
    assert made == {
        "sasl.password": "geheim}",
        "sasl.jaas.config": 'x required password="geheim}" other="${vault:x}";',
        "ssl.key.password": "streng",
        "ssl.keystore.password": "${env:PASSWORD}",
    }
    assert repr(made) == "<sasl.password, sasl.jaas.config, ssl.key.password, ssl.keystore.password>"


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (
            "${env:NOT_SET_ANYWHERE}",
            r"sasl.password is \$\{env:NOT_SET_ANYWHERE\}, and there is no environment variable",
        ),
        ("${dir:/nowhere:secret}", "which can't be read: No such file"),
        ("${file:/nowhere:key}", "which can't be read: No such file"),
        ("${file:/dev/null:key}", "and there is no key in this file"),
        ("${dir::}", "can't be read"),
    ],
)
def test_a_reference_to_nothing_is_refused(reference: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        resolved({"sasl.password": reference})
