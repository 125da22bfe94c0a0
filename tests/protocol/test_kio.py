"""The private names of kio that Odradek imports, with what it relies on: another release of kio may change them."""

import ast
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from kio.schema.alter_partition.v3.request import AlterPartitionRequest
from kio.schema.fetch.v17.request import FetchRequest
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.list_groups.v4.request import ListGroupsRequest
from kio.serial._implicit_defaults import get_tagged_field_default
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    PrimitiveTupleField,
    classify_field,
    get_field_tag,
    get_schema_field_type,
    is_optional,
)

import odradek

PINNED: Final = {
    "EntityField",
    "EntityTupleField",
    "PrimitiveTupleField",
    "classify_field",
    "get_field_tag",
    "get_schema_field_type",
    "get_tagged_field_default",
    "is_optional",
}
CLUSTER_ID, REPLICA_STATE = 0, 1
"""Tags of fields of Fetch."""


def field(schema: type[Any], name: str) -> Any:
    return next(each for each in fields(schema) if each.name == name)


def test_no_other_private_name_of_kio_is_imported():
    imported = {
        alias.name
        for path in Path(odradek.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kio.") and "._" in (node.module or "")
        for alias in node.names
    }
    assert imported == PINNED


def test_fields_are_classified_by_what_they_hold():
    kind = classify_field(field(AlterPartitionRequest, "topics"))
    assert isinstance(kind, EntityTupleField)
    assert {"topic_id", "partitions"} == {each.name for each in fields(kind.type_)}
    assert isinstance(classify_field(field(ListGroupsRequest, "states_filter")), PrimitiveTupleField)
    assert isinstance(classify_field(field(FetchRequest, "replica_state")), EntityField)


def test_a_field_has_a_type_a_tag_and_a_default_and_may_be_null():
    assert get_schema_field_type(field(HeartbeatRequest, "generation_id")) == "int32"
    assert [is_optional(field(HeartbeatRequest, name)) for name in ("group_instance_id", "member_id")] == [True, False]
    tags = {each.name: get_field_tag(each) for each in fields(FetchRequest)}
    assert (tags["cluster_id"], tags["replica_state"], tags["topics"]) == (CLUSTER_ID, REPLICA_STATE, None)
    default: Any = get_tagged_field_default(field(FetchRequest, "replica_state"))
    assert (default.replica_id, default.replica_epoch) == (-1, -1)
