"""A response of any API that reports one error for everything requested, made from the API's schema.

`broker.apis.ErrorPlace` says where the error code is. The response names the resources that the request names; unknown
values are -1, empty or null. `error_codes` finds the codes of any response, for Kafka's metric `ErrorsPerSec`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from functools import cache
from typing import Any, Final
from uuid import UUID

from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveTupleField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

from odradek.broker.apis import APIS, LISTED, ErrorPlace
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.encoder import FIXED
from odradek.protocol.messages.schemas import load_response_schema

_NAMES: Final = (
    ("name", "topic", "topic_name", "user"),
    ("topic_id",),
    ("partition_index", "partition", "partition_id", "index"),
    ("group_id",),
    ("key",),
    ("resource_type",),
    ("resource_name",),
    ("transactional_id",),
    ("producer_id",),
    ("member_id",),
    ("group_instance_id",),
    ("entity_type",),
    ("entity_name",),
)
"""Fields that identify an entry of a request or response; the names on one line are synonyms."""
_ZERO: Final = frozenset({"member_epoch"})
_OF_THE_SESSION: Final = frozenset(
    {
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
        ErrorCode.rebootstrap_required,
    }
)
_BLANK: Final[dict[str, Any]] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "records": b"",
    "uuid": UUID(int=0),
    "error_code": 0,
    "timedelta_i32": 0,
    "timedelta_i64": 0,
}


def error_response(api_key: ApiKey, version: int, request: Any, error: ErrorCode, sentence: str) -> dict[str, Any]:
    """Return the response to a decoded `request` with `error`, and `sentence` in its `error_message` field, if any."""
    response_type = load_response_schema(api_key, version)
    place = LISTED[api_key].error_place
    response = _Response(error, sentence, is_complete=place is ErrorPlace.EVERYWHERE)
    if place is ErrorPlace.NO_ENTRIES:
        return response.struct(response_type, None, named=False) | _nulls(response_type)
    if place is not ErrorPlace.INNERMOST or error in _OF_THE_SESSION:
        return response.struct(response_type, request, named=False)
    message = response.struct(response_type, request, named=False, passed_over=True)
    # An incremental fetch may name no partitions, as its session has them.
    return message if response.has_error_code else response.struct(response_type, request, named=False)


def names_entries(api_key: ApiKey, version: int) -> bool:
    """Return whether a response with an authorization error has the entries of the request."""
    place = APIS[api_key].error_place
    if place is ErrorPlace.OUTERMOST:
        return not _codes(load_response_schema(api_key, version))
    return place is not ErrorPlace.NO_ENTRIES


def error_codes(api_key: int, version: int, message: Mapping[str, Any]) -> Iterator[int]:
    """Yield each error code in `message` that is not 0."""
    return _found(load_response_schema(api_key, version), message)


def _found(entity_type: Any, message: Mapping[str, Any]) -> Iterator[int]:
    for name in _codes(entity_type):
        if code := message.get(name):
            yield int(code)
    for name, item_type in _lists_with_codes(entity_type):
        for item in message.get(name) or ():
            yield from _found(item_type, item)


class _Response:
    """Builds a response. `has_error_code`: whether it has the error code; `is_complete`: it has all inner structs."""

    def __init__(self, error: ErrorCode, sentence: str, *, is_complete: bool) -> None:
        self.has_error_code = False
        self._is_complete = is_complete
        self._error = error
        self._sentence = sentence

    def struct(
        self, entity_type: Any, request: Any, *, named: bool = True, passed_over: bool = False
    ) -> dict[str, Any]:
        """Return a struct of the response, as a dict. `request`: the matching struct, name or number in the request.

        `named`: copy the identifying fields. `passed_over`: leave the error code to inner structs.
        """
        message = dict(_blanks(entity_type))
        if named:
            message |= _identity(entity_type, request)
        codes = () if passed_over else _codes(entity_type)
        if codes:
            self.has_error_code = True
            message |= dict.fromkeys(codes, int(self._error))
            if "error_message" in _names(entity_type):
                message["error_message"] = self._sentence
            if not self._is_complete:
                return message
        for name, item_type in _lists(entity_type) if self._is_complete else _lists_with_codes(entity_type):
            message[name] = [self.struct(item_type, each) for each in _counterpart(request, name)]
        return message


def _identity(entity_type: Any, request: Any) -> dict[str, Any]:
    """Return the response's identifying fields, with the values of `request`."""
    if isinstance(request, str | int):
        places = (name for synonyms in _NAMES for name in synonyms if name in _names(entity_type))
        return {next(places): request}
    request_type: Any = type(request)
    pairs = _identifying(entity_type, request_type)
    return {place: value for place, name in pairs if (value := getattr(request, name)) is not None}


@cache
def _identifying(entity_type: Any, request_type: Any) -> list[tuple[str, str]]:
    """Return the response's identifying fields, each with its counterpart in the request."""
    found: list[tuple[str, str]] = []
    for synonyms in _NAMES:
        place = next((name for name in synonyms if name in _names(entity_type)), None)
        name = next((name for name in synonyms if name in _names(request_type)), None)
        if place is not None and name is not None:
            found.append((place, name))
    return found


@cache
def _names(entity_type: Any) -> frozenset[str]:
    return frozenset(field.name for field in fields(entity_type))


@cache
def _blanks(entity_type: Any) -> Mapping[str, Any]:
    """Return the fields of a struct that have no default, with values that the request does not determine."""
    return {field.name: _blank(field) for field in fields(entity_type) if field.default is MISSING}


def _nulls(entity_type: Any) -> dict[str, Any]:
    """Return the lists of a response that may be null."""
    of_lists = dict(_lists(entity_type))
    return {field.name: None for field in fields(entity_type) if field.name in of_lists and is_optional(field)}


def _counterpart(request: Any, name: str) -> Sequence[Any]:
    """Return the request's list that matches the response's list `name`: the list of that name, else the first.

    AlterUserScramCredentials has two lists of users, and its response one. AlterReplicaLogDirs has lists of topics.
    """
    if request is None:
        return ()
    request_type: Any = type(request)
    lists = _list_names(request_type)
    if "upsertions" in lists:
        return (*request.deletions, *request.upsertions)
    if "dirs" in lists:
        return [topic for each in request.dirs for topic in each.topics]
    found = name if name in lists else next(iter(lists), None)
    return () if found is None else getattr(request, found) or ()


@cache
def _list_names(request_type: Any) -> list[str]:
    kinds = EntityTupleField | PrimitiveTupleField
    return [field.name for field in fields(request_type) if isinstance(classify_field(field), kinds)]


@cache
def _codes(entity_type: Any) -> list[str]:
    return [field.name for field in fields(entity_type) if field.metadata.get("kafka_type") == "error_code"]


@cache
def _lists(entity_type: Any) -> list[tuple[str, Any]]:
    kinds = [(field.name, classify_field(field)) for field in fields(entity_type)]
    return [(name, kind.type_) for name, kind in kinds if isinstance(kind, EntityTupleField)]


@cache
def _lists_with_codes(entity_type: Any) -> list[tuple[str, Any]]:
    return [(name, item) for name, item in _lists(entity_type) if _codes(item) or _lists_with_codes(item)]


def _blank(field: Field[Any]) -> Any:
    """Return the value of a field that the request does not determine."""
    kind = classify_field(field)
    if field.name in _ZERO:
        return 0
    if isinstance(kind, EntityTupleField | PrimitiveTupleField):
        return ()
    if is_optional(field) and get_field_tag(field) is None:
        return b"" if get_schema_field_type(field) == "records" else None
    if isinstance(kind, EntityField):
        return {each.name: _blank(each) for each in fields(kind.type_) if each.default is MISSING}
    schema_type = get_schema_field_type(field)
    return _BLANK.get(schema_type, -1 if schema_type in FIXED else None)
