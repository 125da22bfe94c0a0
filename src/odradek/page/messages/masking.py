"""Masks hide values of fields by name, and parts of texts by regular expression, from users of the page.

Masks of fields fail closed: bytes whose fields are not known, and texts that may have a masked field, are hidden.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from odradek.model import ConfigurationError
from odradek.page.messages.decoding import Decoded

MASKED: Final = "•••"
_MARKUP: Final = frozenset("{[<&%\\")
"""Characters that begin JSON or XML, or that begin an escape, which can hide the name of a field."""


class Masks:
    """The masks of one page; each is a field's name, which is compared without case, or `/REGEX/` in RE2's syntax."""

    def __init__(self, masks: Iterable[str] = (), with_schema: Iterable[str] = ()) -> None:
        """Take the masks, and each `TOPIC.key` or `TOPIC.value` whose fields only a schema can decode."""
        self._with_schema = frozenset(with_schema)
        self._fields: set[str] = set()
        self._patterns = []
        for mask in masks:
            if len(mask) > 2 and mask.startswith("/") and mask.endswith("/"):
                self._patterns.append(compiled(mask[1:-1]))
            elif mask:
                self._fields.add(mask.casefold())
        self._field = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, sorted(self._fields)))})(?!\w)")

    def __bool__(self) -> bool:
        return bool(self._fields or self._patterns)

    def apply(self, decoded: Decoded) -> Decoded:
        """Return the key or value with masks; it is hidden as a whole if its fields are not known."""
        if not self:
            return decoded
        if decoded.format == "hex":
            return msgspec.structs.replace(decoded, text=MASKED)
        return msgspec.structs.replace(decoded, text=self.text(decoded.text), tree=self._tree(decoded.tree))

    def text(self, text: str) -> str:
        """Return a text without what the patterns match; a text that may have a masked field is hidden as a whole."""
        if self._fields and (not _MARKUP.isdisjoint(text) or self._field.search(text.casefold())):
            return MASKED
        return self._without_matches(text)

    def _without_matches(self, text: str) -> str:
        for pattern in self._patterns:
            text = pattern.sub(MASKED.encode(), text.encode()).decode()  # a str would be replaced by Latin-1
        return text

    def needs_schema(self, part: str) -> bool:
        """Return whether `part`, `TOPIC.key` or `TOPIC.value`, is masked and only its schema can decode its fields."""
        return bool(self) and part in self._with_schema

    def header(self, name: str, text: str) -> tuple[str, str]:
        """Return a header's name without what the patterns match, and its value, masked by its name or the patterns."""
        shown = MASKED if name.casefold() in self._fields else self.text(text)
        return self._without_matches(name), shown

    def _tree(self, tree: Any) -> Any:
        if isinstance(tree, dict):
            return {
                _changed(name, self._without_matches): MASKED
                if str(name).casefold() in self._fields
                else self._tree(each)
                for name, each in tree.items()
            }
        if isinstance(tree, list):
            return [self._tree(each) for each in tree]
        return tree if tree is None or isinstance(tree, bool) else _changed(tree, self.text)


def _changed(value: Any, mask: Callable[[str], str]) -> Any:
    """Return the masked text of a value, and the value itself if the mask does not change its text."""
    text = str(value)
    return value if (masked := mask(text)) == text else masked


def compiled(pattern: str) -> Any:
    """Return a pattern of RE2, which never backtracks. Raises `ConfigurationError` for a wrong one."""
    import re2  # imported here: few pages need this compiled library of 2 MB

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error
        raise ConfigurationError(f"the regular expression {pattern[:60]!r} is wrong: {reason}") from None
