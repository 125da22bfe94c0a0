"""Records of internal topics: declared as in Kafka's own definitions, and read by Kafka's tool as by ours."""

import dataclasses
import json
import random
import re
import uuid
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest
from kio.serial._introspect import EntityField, EntityTupleField, classify_field, get_field_tag, is_optional

from bench.peers.kafka_peer import kafka_home
from conformance.peers.dumps import kafkas_lines, our_lines
from odradek.broker.log.directories.log_manager import LogManager
from odradek.broker.log.log_config import LogConfig
from odradek.model import TopicPartition
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.internal_records.group_records import GROUP_RECORDS, ClassicMemberMetadata
from odradek.protocol.internal_records.record_types import RecordType, RecordTypes
from odradek.protocol.internal_records.transaction_records import TRANSACTION_RECORDS
from odradek.protocol.messages.schemas import Layout
from odradek.runtime import SystemDisk

pytestmark = pytest.mark.needs("kafka")

NOW: Final = 1_800_000_000_000
TOPICS: Final = {
    "__consumer_offsets": (GROUP_RECORDS, "--offsets-decoder", "kafka-group-coordinator-[0-9]*.jar"),
    "__transaction_state": (TRANSACTION_RECORDS, "--transaction-log-decoder", "kafka-transaction-coordinator-*.jar"),
}
OTHER_GROUPS: Final = ("Share", "Streams")
"""Kinds of groups that are not supported: their records are unknown."""
LEGACY: Final = 0
"""Offsets as Kafka 0.8 wrote them: Kafka 4 declares them apart, with the values' version 0 only."""


# ---- definitions ----------------------------------------------------------------------------------------------------


def definitions(jar_name: str) -> Iterator[Mapping[str, Any]]:
    """Kafka's definitions of records, as they are in its jar."""
    (jar,) = kafka_home().jars.glob(jar_name)
    with zipfile.ZipFile(jar) as archive:
        for name in archive.namelist():
            if re.fullmatch(r"common/message/\w+\.json", name):
                text = re.sub(r"^\s*//.*$", "", archive.read(name).decode(), flags=re.MULTILINE)
                yield json.loads(text)


def versions(text: str, last: int) -> frozenset[int]:
    """The versions up to `last` of `3+`, `0-4`, `1` or `none`."""
    if text == "none":
        return frozenset()
    first, separator, end = re.fullmatch(r"(\d+)([+-]?)(\d*)", text).groups()  # type: ignore[union-attr]
    return frozenset(range(int(first), (last if separator == "+" else int(end or first)) + 1))


def as_kafka_defines(definition: Mapping[str, Any], last: int) -> Any:
    """The fields of a definition; their defaults if they may be absent from the bytes."""
    structs = {each["name"]: each["fields"] for each in definition.get("commonStructs", ())}

    def shape(field: Mapping[str, Any]) -> Any:
        kind = field["type"].removeprefix("[]")
        inside = field.get("fields") or structs.get(kind)
        present = versions(field.get("versions") or field["taggedVersions"], last)
        return {
            "name": re.sub(r"(?<!^)(?=[A-Z])", "_", field["name"]).lower(),
            "type": kind if inside is None else [shape(each) for each in inside],
            "is_array": field["type"].startswith("[]"),
            "versions": present,
            "tag": field.get("tag"),
            "is_nullable": "nullableVersions" in field,
            "default": kafkas_default(field) if len(present) <= last or "tag" in field else None,
        }

    return [shape(field) for field in definition["fields"]]


def kafkas_default(field: Mapping[str, Any]) -> Any:
    """The value of a field that is not in the bytes."""
    written = field.get("default")
    if "fields" in field:
        # Kafka's generator reads this null of JSON as "no default of its own": an empty struct.
        assert written is None
        return ClassicMemberMetadata()
    if field["type"].startswith("int"):
        return int(written or 0)
    if field["type"].startswith("[]"):
        return ()  # Kafka's generator reads a null of JSON as an empty array
    return None if written == "null" or field["type"] == "uuid" else ""


def as_we_declare(struct: Any, layouts: Sequence[Layout]) -> Any:
    everywhere = frozenset(range(len(layouts)))

    def shape(field: dataclasses.Field[Any]) -> Any:
        kind = classify_field(field)
        is_struct = isinstance(kind, EntityField | EntityTupleField)
        present = frozenset(version for version in everywhere if field in layouts[version].fields(struct))
        tag = get_field_tag(field)
        return {
            "name": field.name,
            "type": as_we_declare(kind.type_, layouts) if is_struct else field.metadata["kafka_type"],
            "is_array": kind.is_array,
            "versions": present,
            "tag": tag,
            # For Python the id of zeros is None.
            "is_nullable": is_optional(field) and field.metadata.get("kafka_type") != "uuid",
            "default": field.default if present < everywhere or tag is not None else None,
        }

    return [shape(field) for field in dataclasses.fields(struct)]


@pytest.mark.parametrize("topic", TOPICS)
def test_every_record_is_declared_as_in_kafkas_definitions(topic: str):
    types, _, jar = TOPICS[topic]
    found = {
        (each["apiKey"], each["type"]): each for each in definitions(jar) if not each["name"].startswith(OTHER_GROUPS)
    }
    assert {number for number, _ in found} == {each.number for each in types}
    for kind in types:
        key, value = found[kind.number, "coordinator-key"], found[kind.number, "coordinator-value"]
        assert as_we_declare(kind.key, [Layout(version=0, flexible=False)]) == as_kafka_defines(key, 0), key["name"]
        if kind.number == LEGACY and topic == "__consumer_offsets":
            continue
        last = kind.last_version
        layouts = [kind.layout(version) for version in range(last + 1)]
        assert (key["name"], value["name"]) == (kind.key.__name__, kind.value.__name__)
        assert as_we_declare(kind.value, layouts) == as_kafka_defines(value, last), value["name"]
        assert versions(value["validVersions"], last) == frozenset(range(last + 1))
        flexible = {version for version, layout in enumerate(layouts) if layout.flexible}
        assert flexible == versions(value["flexibleVersions"], last), value["name"]


# ---- bytes ----------------------------------------------------------------------------------------------------------


def sample(struct: Any, number: int, *, full: bool) -> Any:
    """A struct with something in every field, or with as little as is allowed."""
    values: dict[str, Any] = {}
    for place, field in enumerate(dataclasses.fields(struct), start=number):
        kind = classify_field(field)
        content: Any
        if isinstance(kind, EntityField | EntityTupleField):
            content = sample(kind.type_, place, full=full)
        else:
            content = {
                "string": f"text-{place} é" if full else "",
                "bytes": b"%d" % place if full else b"",
                "uuid": uuid.UUID(int=place << 64 | 7) if full else None,
            }.get(field.metadata["kafka_type"], 100 - place)
        if kind.is_array:
            content = (content, content) if full else ()
        is_null = not full and is_optional(field)
        values[field.name] = None if is_null else content
    return struct(**values)


def records(types: RecordTypes) -> Iterator[tuple[bytes, bytes | None]]:
    """Every type in every version, full and sparse, with a tombstone for each."""
    for kind in types:
        last = 0 if is_legacy(kind, types) else kind.last_version
        for full in (True, False):
            key = sample(kind.key, 40, full=full)
            for version in range(last + 1):
                encoded, value = types.encode(key, sample(kind.value, 1, full=full), version)
                yield kind.number.to_bytes(2, "big") + encoded[2:], value
        yield kind.number.to_bytes(2, "big") + encoded[2:], None


def is_legacy(kind: RecordType, types: RecordTypes) -> bool:
    return kind.number == LEGACY and types is GROUP_RECORDS


def write_log(directory: Path, topic: str, content: Sequence[tuple[bytes, bytes | None]]) -> Path:
    """The log of a partition with these records."""
    manager = LogManager(
        SystemDisk(),
        [str(directory)],
        broker_id=1,
        cluster_id="c",
        entropy=random.Random(3),
        config_for=lambda _: LogConfig(),
        note="the test",
    )
    manager.open(NOW)
    log = manager.get_or_create(TopicPartition(topic, 0), topic_id=uuid.UUID(int=9), now_ms=NOW)
    log.append_as_leader(encode_batch([(NOW, key, value, ()) for key, value in content]), leader_epoch=0, now_ms=NOW)
    log.write()
    manager.close()
    return directory / f"{topic}-0" / f"{0:020d}.log"


@pytest.mark.parametrize("topic", TOPICS)
def test_kafka_decodes_every_record_as_we_do(topic: str, tmp_path: Path):
    types, flag, _ = TOPICS[topic]
    content = list(records(types))
    file = write_log(tmp_path, topic, content)
    ours = our_lines([file], "--records")[file]
    # Kafka 4.4 puts a state that it does not know, as the one here, in quotes.
    kafkas = [re.sub(r'("transactionStatus":)"(\d+)"', r"\1\2", line) for line in kafkas_lines([file], flag)[file]]
    assert ours == kafkas
    assert sum(" key: {" in line for line in ours) == len(content)
    assert len(content) >= 3 * len(list(types))


@pytest.mark.parametrize("topic", TOPICS)
def test_kafka_cannot_decode_what_we_cannot(topic: str, tmp_path: Path):
    types, flag, _ = TOPICS[topic]
    key, value = next(record for record in records(types) if record[0][:2] == b"\0\1" or types is TRANSACTION_RECORDS)
    assert value is not None
    file = write_log(tmp_path, topic, [(b"\0\x63later", value), (key[:5], value), (key, value[:9]), (key, b"\0\x63")])
    ours = [line.partition("[] ")[2] for line in our_lines([file], "--records")[file][1:]]
    kafkas = [line.partition("[] ")[2] for line in kafkas_lines([file], flag)[file][1:]]
    assert [line.startswith("key: Unknown record type 99") for line in kafkas] == [True, False, False, False]
    assert all("skipping" in line for line in kafkas), kafkas
    name = next(iter(types)).value.__name__
    assert ours[0] == "key: <unknown record type 99>"
    assert re.fullmatch("key: <malformed .+>", ours[1])
    assert re.search("}} payload: <malformed .+>$", ours[2])
    assert re.search(rf"\}}\}} payload: <{name} has version 99; this release knows 0 to \d>$", ours[3])
