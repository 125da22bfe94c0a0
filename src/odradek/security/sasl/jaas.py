"""Kafka's login texts (`sasl.jaas.config`): `MODULE required NAME="VALUE" … ;`, read as Kafka's `JaasConfig` does."""

import re
from collections.abc import Iterator, Mapping
from itertools import repeat
from typing import Final

from msgspec import Struct

from odradek.model import ConfigurationError

_MECHANISMS: Final = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": ("OAUTHBEARER",),
}
_TOKEN: Final = r"""(?P<skipped>[\0- ]+ | /\*(?:[\s\S]*?\*/|[\s\S]*) | /[\s\S]?[^\n\r]*)
    | (?P<word>[A-Za-z_$\xa0-\U0010ffff][A-Za-z0-9_$.\-\xa0-\U0010ffff]*)
    | (?P<quote>["'])(?P<text>(?:\\[\s\S]|(?!(?P=quote))[^\\\n\r])*)(?:(?P=quote)|(?=[\n\r])|\Z)
    | -?(?:[0-9]+\.?[0-9]*|\.[0-9]*) | [\s\S]"""
"""The tokens of Java's `StreamTokenizer` as Kafka sets it up: what is skipped, words, texts, numbers and signs.
A quotation mark that is missing is at the end of the line. It is compiled when a text is read, as this takes 5 ms."""
_WORD: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.\-]*")
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|[\s\S])")
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_FLAGS: Final = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})


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
    tokens = _tokens(text)
    module = (next(tokens)[0] or "").rpartition(".")[2]
    if module == "Krb5LoginModule":
        raise ConfigurationError(
            "sasl.jaas.config: Kerberos (GSSAPI) is not supported; use SCRAM-SHA-512 or OAUTHBEARER"
        )
    if module not in _MECHANISMS:
        raise ConfigurationError(
            "sasl.jaas.config begins with a login module: org.apache.kafka.common.security.plain.PlainLoginModule, "
            "…scram.ScramLoginModule or …oauthbearer.OAuthBearerLoginModule"
        )
    if (next(tokens)[0] or "").upper() not in _FLAGS:
        raise ConfigurationError("sasl.jaas.config has `required` after the login module")
    options: dict[str, str] = {}
    while (token := next(tokens))[1] != ";":
        (name, written, place), equals, (value, _, _) = token, next(tokens), next(tokens)
        if not written:
            raise ConfigurationError("sasl.jaas.config ends with a semicolon, which is missing, or within quotes")
        if name is None or value is None or equals[:2] != (None, "="):
            raise ConfigurationError(
                f'sasl.jaas.config has options NAME="VALUE", and none at character {place + 1}, after '
                f"{next(reversed(options), 'required')!r}; a name with other characters than letters, digits, _, $, - "
                'and . is quoted, too: "user_ann@acme"="VALUE"'
            )
        options[name] = value
    if next(tokens)[1]:
        raise ConfigurationError("sasl.jaas.config has one login module, and ends with its semicolon")
    return JaasLogin(mechanisms=_MECHANISMS[module], options=options)


def _tokens(text: str) -> Iterator[tuple[str | None, str, int]]:
    """Yield the content (None for numbers and signs), the text and the place of each token, then empty ones."""
    for found in re.finditer(_TOKEN, text, re.VERBOSE):
        if found["skipped"] is None:
            content = found["word"] if found["quote"] is None else _ESCAPE.sub(_unescaped, found["text"])
            yield content, found[0], found.start()
    yield from repeat((None, "", len(text)))


def _unescaped(found: re.Match[str]) -> str:
    escaped = found[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPES.get(escaped, escaped)


def jaas_text(mechanism: str, options: Mapping[str, str]) -> str:
    """Return the login text of a mechanism with these options."""
    module = next(module for module, mechanisms in _MECHANISMS.items() if mechanism in mechanisms)
    package = f"org.apache.kafka.common.security.{module.removesuffix('LoginModule').lower()}"
    pairs = (f"{name if _WORD.fullmatch(name) else _quoted(name)}={_quoted(each)}" for name, each in options.items())
    return " ".join([f"{package}.{module} required", *pairs]) + ";"


def _quoted(text: str) -> str:
    escaped = re.sub(r'["\\]', r"\\\g<0>", text).replace("\n", r"\n").replace("\r", r"\r")
    return f'"{escaped}"'
