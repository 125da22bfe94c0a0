"""The login texts of Kafka's clients and brokers (X2)."""

import pytest

from odradek.model import ConfigurationError
from odradek.security.sasl import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="alice" password="secret";', {"username": "alice", "password": "secret"}),
        (f"{PLAIN} required\n username='alice'\n password=\"a;\\\" c\";", {"username": "alice", "password": 'a;" c'}),
        (f"kafkashaded.{PLAIN} required username=alice password=s3;", {"username": "alice", "password": "s3"}),
        (f"{PLAIN} required;", {}),
    ],
)  # fmt: skip
def test_options_are_read_as_java_reads_them(text: str, options: dict[str, str]) -> None:
    login = parse_jaas(text)
    assert (login.mechanisms, dict(login.options)) == (("PLAIN",), options)


def test_a_brokers_text_has_users_and_its_own_name() -> None:
    login = parse_jaas(f'{PLAIN} required username="broker" password="b" user_broker="b" user_alice="a";')
    assert login.users == {"broker": "b", "alice": "a"}
    assert "password" in repr(login)
    assert '"b"' not in repr(login)
    assert "'b'" not in repr(login)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "begins with a login module"),
        ("Nonsense required;", "begins with a login module"),
        ("com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;", "Kerberos .* is not supported"),
        (f"{PLAIN} username=x;", "has `required`"),
        (f'{PLAIN} required username="x"', "semicolon"),
        (f'{PLAIN} required username="x" password="sec;', "character .*, after 'username'"),
        (f"{PLAIN} required = ;", "character"),
    ],
)
def test_a_text_that_does_not_parse_says_where_without_its_secrets(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as raised:
        parse_jaas(text)
    assert "sec;" not in str(raised.value)
