"""Files of messages: NDJSON for `odradek produce --json`, CSV, Parquet, and a pytest fixture that replays them."""

import io
import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from odradek.clients import ConsumerRecord
from odradek.model import packages_of
from odradek.page.messages.reading import header_text
from odradek.texts.offset_specs import csv_line
from odradek.values.record_formats import json_formatter


class Export(NamedTuple):
    """A file format: what it is called, the file's ending, its media type, and the function that makes it."""

    title: str
    ending: str
    media_type: str
    make: Callable[[Sequence[ConsumerRecord]], bytes]


def ndjson(records: Sequence[ConsumerRecord]) -> bytes:
    """Return a JSON object per line, with bytes that are not UTF-8 as base64."""
    return b"".join(map(json_formatter(), records))


def csv_file(records: Sequence[ConsumerRecord]) -> bytes:
    """Return CSV with a heading. Texts that a spreadsheet would take for a formula have an apostrophe in front."""
    lines = [csv_line(("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers"))]
    for each in records:
        headers = ",".join(f"{name}={header_text(value)}" for name, value in each.headers)
        texts = (_cell(header_text(each.key)), _cell(header_text(each.value)), _cell(headers))
        lines.append(csv_line((each.topic, each.partition, each.offset, each.timestamp, *texts)))
    return "".join(lines).encode()


def _cell(text: str) -> str:
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text


def parquet(records: Sequence[ConsumerRecord]) -> bytes:
    """Return a Parquet file with keys, values and headers as bytes. Needs the extra `arrow`."""
    with packages_of("arrow", "Parquet files"):
        import pyarrow as pa
        import pyarrow.parquet as pq
    schema = pa.schema(
        {
            "topic": pa.string(),
            "partition": pa.int32(),
            "offset": pa.int64(),
            "timestamp": pa.timestamp("ms", tz="UTC"),
            "key": pa.binary(),
            "value": pa.binary(),
            "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
        }
    )
    rows = [
        {
            "topic": each.topic,
            "partition": each.partition,
            "offset": each.offset,
            "timestamp": each.timestamp if each.timestamp >= 0 else None,
            "key": each.key,
            "value": each.value,
            "headers": [{"key": name, "value": value} for name, value in each.headers],
        }
        for each in records
    ]
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)
    return file.getvalue()


_FIXTURE: Final = '''"""Messages of the topic {topic}, for tests with pytest and the package odradek[testing]."""

import pytest
from odradek.clients.blocking import Admin, Producer

TOPIC = {topic!r}
MESSAGES = [  # (partition, timestamp in ms, key, value, headers)
{messages}
]


@pytest.fixture
def {name}(kafka):
    """Write the messages to the test cluster, in the partitions and the order that they had; return the topic."""
    with Admin(kafka.bootstrap_servers) as admin:
        admin.create_topic(TOPIC, partitions={partitions})
    with Producer(kafka.bootstrap_servers) as producer:
        for partition, timestamp_ms, key, value, headers in MESSAGES:
            producer.send(TOPIC, value, key=key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
    yield TOPIC
    with Admin(kafka.bootstrap_servers) as admin:
        admin.delete_topics([TOPIC])
'''


def pytest_fixture(records: Sequence[ConsumerRecord]) -> bytes:
    """Return a Python file with a fixture that writes the messages again, oldest first."""
    in_order = sorted(records, key=lambda each: (each.partition, each.offset))
    topic = records[0].topic if records else "messages"
    messages = [
        f"    {(each.partition, max(each.timestamp, 0), each.key, each.value, list(each.headers))!r},"
        for each in in_order
    ]
    return _FIXTURE.format(
        topic=topic,
        name="topic_" + re.sub(r"\W", "_", topic),
        messages="\n".join(messages),
        partitions=max((each.partition for each in records), default=0) + 1,
    ).encode()


EXPORTS: Final = {
    "ndjson": Export("NDJSON", "ndjson", "application/x-ndjson", ndjson),
    "csv": Export("CSV", "csv", "text/csv; charset=utf-8", csv_file),
    "parquet": Export("Parquet", "parquet", "application/vnd.apache.parquet", parquet),
    "pytest": Export("pytest fixture", "py", "text/x-python; charset=utf-8", pytest_fixture),
}
