"""Rules that turn a certificate's name into a principal's name (`ssl.principal.mapping.rules`, KIP-371).

```
RULE:PATTERN/REPLACEMENT/[L|U],…,DEFAULT      $1 in REPLACEMENT is a group of PATTERN; L and U: lower and upper case
```
The first rule whose pattern matches the whole name decides. Patterns are RE2's, which match in linear time: Java's
lookaheads and back references within patterns are refused.
"""

import re
from collections.abc import Callable
from typing import Any, Final

from odradek.model import ConfigurationError

KEY: Final = "ssl.principal.mapping.rules"
_RULE: Final = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))?\s*(?:,|$)")
_REPLACED: Final = re.compile(r"\\(.)|\$(\d+)|\$")
_CASES: Final[dict[str, Callable[[str], str]]] = {"": str, "L": str.lower, "U": str.upper}
_Rule = Callable[[str], str | None]


def principal_mapping(rules: str) -> _Rule:
    """Return a function that maps names; it returns None if no rule matches. Raises `ConfigurationError`."""
    found: list[_Rule] = []
    position = 0
    while position < len(rules):
        match = _RULE.match(rules, position)
        if match is None:
            raise ConfigurationError(
                f"{KEY} has rules RULE:PATTERN/REPLACEMENT/, with L or U at the end or not, and DEFAULT, separated by "
                f"commas, not {rules[position : position + 100]!r}"
            )
        default, pattern, replacement, case = match.groups()
        if default:
            found.append(str)
        elif pattern is not None:
            found.append(_rule(pattern, replacement, _CASES[case]))
        position = match.end()
    return lambda name: next((mapped for rule in found if (mapped := rule(name)) is not None), None)


def _rule(pattern: str, replacement: str, case: Callable[[str], str]) -> _Rule:
    import re2  # imported here: few processes need this compiled library of 2 MB

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise ConfigurationError(f"{KEY}: {pattern!r} is not a pattern of RE2: {reason}") from None
    parts = _parts(replacement, compiled.groups)

    def replaced(match: Any) -> str:
        return "".join(part if isinstance(part, str) else match[part] or "" for part in parts)

    return lambda name: case(compiled.sub(replaced, name)) if compiled.fullmatch(name) else None


def _parts(replacement: str, groups: int) -> list[str | int]:
    """Return the texts and groups of a replacement. As in Java, $12 is group 1 and 2 if there are less than 12."""
    parts: list[str | int] = []
    position = 0
    for match in _REPLACED.finditer(replacement):
        parts.append(replacement[position : match.start()])
        position = match.end()
        escaped, digits = match.groups()
        if escaped is None and digits is None:
            raise ConfigurationError(f"{KEY}: $ in {replacement!r} is followed by a group's number, or is \\$")
        if digits is None:
            parts.append(escaped)
            continue
        length = len(digits)
        while length > 1 and int(digits[:length]) > groups:
            length -= 1
        known = int(digits[:length]) <= groups
        parts += [int(digits[:length]) if known else f"${digits[:length]}", digits[length:]]
    return [*parts, replacement[position:]]
