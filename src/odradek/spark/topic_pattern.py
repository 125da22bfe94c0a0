"""Compiles the regular expressions of `subscribePattern`, which have Java's syntax, as in the JVM connector.

RE2 matches in linear time and supports most of Java's syntax. Python's `re` matches patterns that RE2 does not support:
look-around, back-references, possessive quantifiers, atomic groups. Classes within classes are refused: only Java has
them, and RE2 and `re` would match something else.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import re2

from odradek.model import ConfigurationError

_NESTED_CLASS: Final = re.compile(r"(?:\\.|[^\[\\])*\[\^?\]?(?:\\.|\[:|[^\]\[\\])*?(?:\[(?!:)|&&)", re.DOTALL)
_JAVA_GROUP: Final = re.compile(r"\(\?<(?=[A-Za-z])")
_JAVA_REFERENCE: Final = re.compile(r"\\k<(\w+)>")
_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|$)", re.DOTALL)


@lru_cache(maxsize=16)
def topic_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a predicate that matches whole topic names. Raise `ConfigurationError` for an invalid pattern."""
    quoted = _QUOTED.sub(lambda found: re.escape(found[1]), pattern)
    if _NESTED_CLASS.match(quoted):
        raise ConfigurationError(
            f"subscribePattern {pattern!r} has a class within a class, which only Java knows: "
            "write (?![bc])[a-z] for [a-z&&[^bc]], and [a-dm-p] for [a-d[m-p]]"
        )
    options = re2.Options()
    options.log_errors = False
    try:
        linear = re2.compile(quoted, options=options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error.args[0]
    else:
        return lambda topic: bool(linear.fullmatch(topic))
    try:
        compiled = re.compile(_JAVA_REFERENCE.sub(r"(?P=\1)", _JAVA_GROUP.sub("(?P<", quoted)))
    except re.error:
        raise ConfigurationError(f"subscribePattern is not a regular expression: {reason}") from None
    return lambda topic: compiled.fullmatch(topic) is not None
