"""The login texts of Kafka's clients and brokers, as Kafka's own JaasConfig reads them (X2)."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.model import ConfigurationError
from odradek.security.sasl.jaas import jaas_text, parse_jaas
from tests.world.jvm import running_jvm

MODULE: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
READ: Final[list[tuple[str, dict[str, str]]]] = [
    ("required;", {}),
    ('required username="alice" password="secret";', {"username": "alice", "password": "secret"}),
    ('required\n username=\'alice\'\n password="a;\\" c";', {"username": "alice", "password": 'a;" c'}),
    ("required username=alice password=s3;", {"username": "alice", "password": "s3"}),
    ("REQUIRED username=alice;", {"username": "alice"}),
    ("Optional username=alice;", {"username": "alice"}),
    ("sufficient username=alice;", {"username": "alice"}),
    ('"requisite" username=alice;', {"username": "alice"}),
    ('required username = "a" ;', {"username": "a"}),
    ('required "username"="a";', {"username": "a"}),
    ('required "user_ops@acme.example"="x" user_b="y";', {"user_ops@acme.example": "x", "user_b": "y"}),
    ("required 'user_a+b:c,d'='x';", {"user_a+b:c,d": "x"}),
    (r'required "user_acme\\ann"="x";', {r"user_acme\ann": "x"}),
    ('required user_svc$1="x" $a="y";', {"user_svc$1": "x", "$a": "y"}),
    ('required user_a.b-c_d="x";', {"user_a.b-c_d": "x"}),
    ('required user_ünal="x" user_主="y" user_🎈="z";', {"user_ünal": "x", "user_主": "y", "user_🎈": "z"}),
    ('required "user_a b"="x" "user_a=b"="y" "user_a;b"="z";', {"user_a b": "x", "user_a=b": "y", "user_a;b": "z"}),
    ('required "user_a/b"="x//y";', {"user_a/b": "x//y"}),
    ('required "user_it\'s"=\'say "x"\';', {"user_it's": 'say "x"'}),
    ('required username="";', {"username": ""}),
    ("required username=ünal.1-2_3$;", {"username": "ünal.1-2_3$"}),
    ('required a="\\a\\b\\f\\n\\r\\t\\v";', {"a": "\a\b\f\n\r\t\v"}),
    (r'required a="\q\'\"\\";', {"a": "q'\"\\"}),
    (r'required a="\101\12x\7";', {"a": "A\nx\a"}),
    (r'required a="\477\3777\08";', {"a": "'7\xff7\x008"}),
    ('required a="x\\\ny";', {"a": "x\ny"}),
    ('required a="x\ty";', {"a": "x\ty"}),
    ('required a="x\n b="y";', {"a": "x", "b": "y"}),
    ("required // the user\n username=a; // end", {"username": "a"}),
    ("required /* x = y; */ username=a /**/;/* z", {"username": "a"}),
    ("required username=a/ and so on;\n;", {"username": "a"}),
    ("required username=a / \npassword=b;", {"username": "a", "password": "b"}),
    ('required a="// x" b="/* y */";', {"a": "// x", "b": "/* y */"}),
    ("required a=x a=y;", {"a": "y"}),
    ('required a="x"b="y";', {"a": "x", "b": "y"}),
    ("required\ra=x\r\nb=y\t;\r\n", {"a": "x", "b": "y"}),
    ("required a=true;", {"a": "true"}),
    ('required a="1" b="-1.5";', {"a": "1", "b": "-1.5"}),
    ("required a=_1 b=x1;", {"a": "_1", "b": "x1"}),
    ('required\0a="x";', {"a": "x"}),
    ('required a="\u2028\u202e";', {"a": "\u2028\u202e"}),
]
REFUSED: Final = [
    ("", "begins with a login module"),
    ("Nonsense required;", "begins with a login module"),
    (f"1{MODULE} required;", "begins with a login module"),
    (f"// {MODULE} required;", "begins with a login module"),
    ("com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;", "Kerberos .* is not supported"),
    (f"{MODULE};", "has `required`"),
    (f"{MODULE} username=sec;", "has `required`"),
    (f"{MODULE} require username=sec;", "has `required`"),
    (f'{MODULE} required username="x"', "semicolon"),
    (f'{MODULE} required username="x" password="sec;', "semicolon, which is missing, or within quotes"),
    (f'{MODULE} required username="x" password="sec;"', "semicolon"),
    (f"{MODULE} required username=sec // ;", "semicolon"),
    (f"{MODULE} required username=a/b;", "semicolon"),
    (f"{MODULE} required = ;", "character"),
    (f"{MODULE} required username;", "character"),
    (f"{MODULE} required username=;", "character"),
    (
        f"{MODULE} required user_a=x user_ops@acme.example=sec;",
        "after 'user_a'; a name with .* is quoted",
    ),
    (f"{MODULE} required user_a=x, user_b=sec;", "after 'user_a'"),
    (f"{MODULE} required user_a+b=sec;", "after 'required'"),
    (f"{MODULE} required user_a:b=sec;", "after 'required'"),
    (f"{MODULE} required user_a\\b=sec;", "after 'required'"),
    (f"{MODULE} required user_a b=sec;", "after 'required'"),
    (f"{MODULE} required password=1sec;", "after 'required'"),
    (f"{MODULE} required password=-sec;", "after 'required'"),
    (f"{MODULE} required password=.sec;", "after 'required'"),
    (f"{MODULE} required password=@sec;", "after 'required'"),
    (f"{MODULE} required password=sec%;", "after 'password'"),
    (f"{MODULE} required password=\x80sec;", "after 'required'"),
    (f"{MODULE} required 1=sec;", "after 'required'"),
    (f"{MODULE} required; {MODULE} required;", "one login module"),
    (f"{MODULE} required;;", "one login module"),
]


@pytest.mark.parametrize(("text", "options"), READ)
def test_options_are_read_as_java_reads_them(text: str, options: dict[str, str]) -> None:
    for module in (MODULE, f"kafkashaded.{MODULE}", f'"{MODULE}"', f"/* x */ {MODULE}"):
        login = parse_jaas(f"{module} {text}")
        assert (login.mechanisms, dict(login.options)) == (("PLAIN",), options)


@pytest.mark.parametrize(("text", "said"), REFUSED)
def test_a_text_that_does_not_parse_says_where_without_its_secrets(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as raised:
        parse_jaas(text)
    assert "sec" not in str(raised.value).replace("org.apache.kafka.common.security", "")


@pytest.mark.needs("java", "kafka")
def test_kafka_reads_the_same_options_and_refuses_the_same_texts() -> None:
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    from bench.peers.kafka_peer import kafka_home

    users = ("a@b", "a b", "a=b", "a;b", 'a"b', "a'b", "a/b", "a\\b", "a\nb", "1-", "")
    hostile = {f"user_{each}": each for each in users}
    with running_jvm(f"{kafka_home().jars}/*") as jvm:
        kafka = jvm.org.apache.kafka.common

        def options(text: str) -> dict[str, str] | None:
            """Return what Kafka reads; None for a text that it refuses."""
            config = {"sasl.jaas.config": kafka.config.types.Password(text)}
            try:
                (entry,) = kafka.security.JaasContext.loadClientContext(config).configurationEntries()
            except Py4JJavaError:
                return None
            return dict(entry.getOptions())

        assert [options(f"{MODULE} {text}") for text, _ in READ] == [expected for _, expected in READ]
        known = [text for text, _ in REFUSED if MODULE in text and "begins" not in text]
        accepted = [found for found in map(options, known) if found is not None]
        assert accepted == [{None: "sec"}], "an option without a name, which is refused here"
        assert options(jaas_text("PLAIN", hostile)) == hostile


@given(st.dictionaries(st.text(min_size=1), st.text(), max_size=4))
def test_a_text_that_is_written_is_read_as_it_was(options: dict[str, str]) -> None:
    assert dict(parse_jaas(jaas_text("PLAIN", options)).options) == options


def test_names_and_values_are_quoted_where_they_would_not_be_read_back() -> None:
    text = jaas_text("SCRAM-SHA-256", {"username": "a b", "user_a@b": 'x"\\\n', "user_c": ""})
    assert text.endswith(r'ScramLoginModule required username="a b" "user_a@b"="x\"\\\n" user_c="";')


def test_a_brokers_text_has_users_and_its_own_name() -> None:
    login = parse_jaas(f'{MODULE} required username="broker" password="b" user_broker="b" "user_a@b"="a";')
    assert login.users == {"broker": "b", "a@b": "a"}
    assert "password" in repr(login)
    assert '"b"' not in repr(login)
    assert "'b'" not in repr(login)
