"""Kafka's error codes: kio's and the newer ones of Kafka 4.4. The first module of kio that a process imports."""

from typing import Final

from odradek.model.hidden_package import hidden_package

# kio imports hypothesis if it is installed, which takes a third of a second and 20 MB.
with hidden_package("hypothesis"):
    from kio.schema.errors import ErrorCode as ErrorCode

_NEWER: Final = {
    "group_deletion_failed": 134,
    "streams_topology_description_update_failed": 135,
    "controller_id_not_registered": 136,
}
"""Codes of Kafka 4.4 that kio lacks; clients do not retry after any of them."""


def _extend() -> None:
    """Add the newer codes to kio's enumeration, as its annotations and comparisons are those of that class."""
    for name, number in _NEWER.items():
        if number in ErrorCode._value2member_map_:
            continue
        code = int.__new__(ErrorCode, number)
        code._name_, code._value_, code.retriable = name, number, False
        setattr(ErrorCode, name, code)
        ErrorCode._member_names_.append(name)
        ErrorCode._member_map_[name] = code
        ErrorCode._value2member_map_[number] = code


_extend()
