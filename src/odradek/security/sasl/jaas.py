"""Kafka's login texts (`sasl.jaas.config`): `MODULE required NAME="VALUE" … ;`."""

import re
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from odradek.model import ConfigurationError

_MECHANISMS: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}
_OPTION: Final = re.compile(r"""\s*([\w.\-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")


class JaasLogin(Struct, frozen=True, kw_only=True):
    """A login text's module, by the mechanisms that it is for, and options."""

    mechanisms: tuple[str, ...]
    options: Mapping[str, str]

    def __repr__(self) -> str:
        return f"JaasLogin(mechanisms={self.mechanisms!r}, options={sorted(self.options)})"

    @property
    def users(self) -> dict[str, str]:
        """The options `user_NAME`: passwords of a broker's users, by name."""
        prefix = "user_"
        return {key.removeprefix(prefix): each for key, each in self.options.items() if key.startswith(prefix)}


def parse_jaas(text: str) -> JaasLogin:
    """Parse a login text. Raises `ConfigurationError` that says where, without the text: it has passwords."""
    words = text.split(None, 2)
    module = words[0].rpartition(".")[2] if words else ""
    if module == "Krb5LoginModule":
        raise ConfigurationError(
            "sasl.jaas.config: Kerberos (GSSAPI) is not supported; use SCRAM-SHA-512 or OAUTHBEARER"
        )
    if module not in _MECHANISMS:
        raise ConfigurationError(
            "sasl.jaas.config begins with a login module: org.apache.kafka.common.security.plain.PlainLoginModule, "
            "…scram.ScramLoginModule or …oauthbearer.OAuthBearerLoginModule"
        )
    if len(words) < 2 or words[1].rstrip(";") not in {"required", "requisite", "sufficient", "optional"}:
        raise ConfigurationError("sasl.jaas.config has `required` after the login module")
    start = text.index(words[1], text.index(words[0]) + len(words[0])) + len(words[1].rstrip(";"))
    end = text.rstrip().removesuffix(";").rstrip()
    if not text.rstrip().endswith(";"):
        raise ConfigurationError("sasl.jaas.config ends with a semicolon, which is missing")
    options: dict[str, str] = {}
    while start < len(end):
        found = _OPTION.match(end, start)
        if found is None:
            raise ConfigurationError(
                f'sasl.jaas.config has options NAME="VALUE", and none at character {start + 1}, after '
                f"{next(reversed(options), 'required')!r}"
            )
        name, quoted, single, bare = found.groups()
        options[name] = re.sub(r"\\(.)", r"\1", next(each for each in (quoted, single, bare) if each is not None))
        start = found.end()
    return JaasLogin(mechanisms=_MECHANISMS[module], options=options)


def jaas_text(mechanism: str, options: Mapping[str, str]) -> str:
    """Return the login text of a mechanism with these options."""
    module = next(module for module, mechanisms in _MECHANISMS.items() if mechanism in mechanisms)
    package = f"org.apache.kafka.common.security.{module.removesuffix('LoginModule').lower()}"
    escaped = {name: re.sub(r'(["\\])', r"\\\1", value) for name, value in options.items()}
    return " ".join([f"{package}.{module} required", *(f'{name}="{value}"' for name, value in escaped.items())]) + ";"
