"""Short names of a group's members: the client id, and the first characters of the member id."""

import re
from collections.abc import Mapping
from typing import Final

_ID: Final = re.compile(r"(?P<client>.+)-(?P<rest>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})")
"""The member ids that brokers make: the client id or the `group.instance.id`, and a UUID."""
_WORD: Final = re.compile(r"""[^\s,;:()"']*[^\s,;:()"'.]""")
_LEAST: Final = 4


class MemberNames:
    """The names of members whose client ids are given by member id, and of others whose ids brokers have made."""

    def __init__(self, clients: Mapping[str, str] | None = None) -> None:
        parts = {member_id: _parts(member_id, client_id) for member_id, client_id in (clients or {}).items()}
        for length in range(_LEAST, max(map(len, parts), default=0) + _LEAST + 1):
            self._names = {each: f"{client}-{rest[:length]}" for each, (client, rest) in parts.items()}
            if len(set(self._names.values())) == len(parts):
                break

    def text(self, text: str) -> str:
        return self._names.get(text) or _WORD.sub(lambda word: self._name(word[0]), text)

    def _name(self, word: str) -> str:
        made = None if word in self._names else _ID.fullmatch(word)
        return self._names.get(word, word) if made is None else f"{made['client']}-{made['rest'][:_LEAST]}"


def _parts(member_id: str, client_id: str) -> tuple[str, str]:
    made = _ID.fullmatch(member_id)
    client = client_id or (made["client"] if made else "member")
    return client, made["rest"] if made else member_id.removeprefix(f"{client_id}-")
