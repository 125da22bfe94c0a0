"""JSON files of Kafka's tools for partitions: reassignments, elections and offsets to delete records before."""

import asyncio
import io
import json
from typing import Any, Final

import pytest

from odradek.cli.partition_lists import assignment_json, read_assignment, read_partitions
from odradek.cli.partitions.records import read_offsets
from odradek.clients.admin.log_dirs import LogDirDescription
from odradek.model import ConfigurationError, ErrorCode, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def file(content: Any) -> io.BytesIO:
    made = io.BytesIO(content if isinstance(content, bytes) else json.dumps(content).encode())
    made.name = "plan.json"
    return made


def plan(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"version": 1, "partitions": list(entries)} | more


def entry(partition: Any = 0, replicas: Any = (1, 2), **more: Any) -> dict[str, Any]:
    return {"topic": "t", "partition": partition, "replicas": replicas} | more


KAFKAS: Final = (
    b'{"version":1,"partitions":[{"topic":"t","partition":0,"replicas":[1,2],"log_dirs":["any","any"]},'
    b'{"topic":"t","partition":1,"replicas":[2],"log_dirs":["any"]}]}'
)
"""As kafka-reassign-partitions --generate prints it."""


@pytest.mark.parametrize(
    ("content", "replicas", "directories"),
    [
        (KAFKAS, {T0: (1, 2), T1: (2,)}, {}),
        (b"\xef\xbb\xbf" + KAFKAS, {T0: (1, 2), T1: (2,)}, {}),
        (KAFKAS.decode().encode("utf-16"), {T0: (1, 2), T1: (2,)}, {}),
        (KAFKAS.replace(b",", b",\r\n\t "), {T0: (1, 2), T1: (2,)}, {}),
        (plan(entry()), {T0: (1, 2)}, {}),
        ({"partitions": [entry()]}, {T0: (1, 2)}, {}),
        (plan(entry(1), entry(0)), {T0: (1, 2), T1: (1, 2)}, {}),
        (plan(entry(), comment="x"), {T0: (1, 2)}, {}),
        (plan(entry(comment="x")), {T0: (1, 2)}, {}),
        (plan(entry("0")), {T0: (1, 2)}, {}),
        (plan(entry(log_dirs=["any", "/d"])), {T0: (1, 2)}, {2: "/d"}),
        (plan(entry(log_dirs=["/a", "/b"])), {T0: (1, 2)}, {1: "/a", 2: "/b"}),
    ],
)
def test_a_reassignment_is_read(content: Any, replicas: Any, directories: Any) -> None:
    found = read_assignment(file(content))
    assert found.replicas == replicas
    assert found.directories[T0] == directories
    assert read_assignment(file(assignment_json(found.replicas).encode())).replicas == replicas


BROKEN: Final = [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"\xff\xfe\xfd", "not JSON"),
    (b"[" * 100_000, "not JSON"),
    ([], "not a JSON object"),
    ("text", "not a JSON object"),
    ({}, "partitions is not a list"),
    ({"version": 1}, "partitions is not a list"),
    (plan(), "names no partition"),
    ({"version": 1, "partitions": {}}, "partitions is not a list"),
    ({"version": 1, "partitions": [5]}, "not a JSON object"),
    (plan({"partition": 0, "replicas": [1]}), "topic is not a string"),
    (plan({"topic": 5, "partition": 0, "replicas": [1]}), "topic is not a string"),
    (plan({"topic": "t", "replicas": [1]}), "partition is not an integer"),
    (plan(entry(0.5)), "partition is not an integer"),
    (plan(entry(True)), "partition is not an integer"),
    (plan(entry("x")), "partition is not an integer"),
    (plan(entry(2**31)), "partition is not an integer"),
    (plan(entry(), entry()), "t-0 is named 2 times"),
    (plan(entry(), entry("0")), "t-0 is named 2 times"),
    (plan(entry(), version=2), "version 2 is not supported"),
    (plan(entry(), version=0), "version 0 is not supported"),
    (plan(entry(), version=-1), "version -1 is not supported"),
    (plan(entry(), version="2"), "version 2 is not supported"),
    (plan(entry(), version=1.5), "version is not an integer"),
    (plan(entry(), version=None), "version is not an integer"),
    (plan(entry(), version="one"), "version is not an integer"),
]
"""Files that are neither reassignments nor elections."""


@pytest.mark.parametrize(
    ("content", "said"),
    [
        *BROKEN,
        (plan({"topic": "t", "partition": 0}), "replicas is not a list of integers"),
        (plan(entry(replicas=1)), "replicas is not a list of integers"),
        (plan(entry(replicas=["1"])), "replicas is not a list of integers"),
        (plan(entry(replicas=[2**31])), "replicas is not a list of integers"),
        (plan(entry(log_dirs=[])), "log_dirs is not a list with one directory"),
        (plan(entry(log_dirs=["any"])), "log_dirs is not a list with one directory"),
        (plan(entry(log_dirs=["any"] * 3)), "log_dirs is not a list with one directory"),
        (plan(entry(log_dirs=None)), "log_dirs is not a list of strings"),
        (plan(entry(log_dirs="any")), "log_dirs is not a list of strings"),
        (plan(entry(log_dirs=[1, 2])), "log_dirs is not a list of strings"),
        (plan(entry(log_dirs=["any", None])), "log_dirs is not a list of strings"),
    ],
)
def test_a_file_that_is_no_reassignment_is_refused(content: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^plan\.json:? .*{said}"):
        read_assignment(file(content))


def test_an_election_is_read() -> None:
    assert read_partitions(file({"partitions": [{"topic": "t", "partition": 1}, {"topic": "t", "partition": 0}]})) == [
        T0,
        T1,
    ]


@pytest.mark.parametrize(("content", "said"), BROKEN)
def test_a_file_that_is_no_election_is_refused(content: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^plan\.json:? .*{said}"):
        read_partitions(file(content))


def offset(number: Any = 5, **more: Any) -> dict[str, Any]:
    return {"topic": "t", "partition": 0, "offset": number} | more


@pytest.mark.parametrize(
    ("content", "offsets"),
    [
        (plan(offset()), {T0: 5}),
        ({"partitions": [offset()]}, {T0: 5}),
        (b"\xef\xbb\xbf" + json.dumps(plan(offset())).encode(), {T0: 5}),
        (plan(offset(-1), offset(partition=1)), {T0: -1, T1: 5}),
        (plan(offset(2**63 - 1)), {T0: 2**63 - 1}),
    ],
)
def test_offsets_are_read(content: Any, offsets: Any) -> None:
    assert read_offsets(file(content)) == offsets


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not of the form"),
        (b"[" * 100_000, "is not of the form"),
        ([], "is not of the form"),
        ({}, "is not of the form"),
        (plan(), "names no partition"),
        (plan(offset(), offset()), "t-0 is named twice"),
        (plan(offset("5")), "is not of the form"),
        (plan(offset(True)), "is not of the form"),
        (plan(offset(2**63)), "is not of the form"),
        (plan(offset(partition=True)), "is not of the form"),
        (plan(offset(partition="0")), "is not of the form"),
        (plan(offset(partition=2**31)), "is not of the form"),
        (plan(offset(topic=5)), "is not of the form"),
        (plan(offset(), version=2), "version 2 is not supported"),
        (plan(offset(), version="1"), "version .1. is not supported"),
    ],
)
def test_a_file_that_has_no_offsets_is_refused(content: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"^plan\.json:? .*{said}"):
        read_offsets(file(content))


@pytest.mark.parametrize(
    ("sizes", "future_sizes", "misplaced"),
    [
        ({"/a": T0}, {}, {}),
        ({"/b": T0}, {"/a": T0}, {T0: True}),
        ({}, {}, {T0: True}),
        ({"/b": T0}, {}, {T0: False}),
    ],
    ids=["in place", "moves", "not created", "has ended"],
)
def test_a_replica_in_another_directory_without_a_copy_does_not_move(sizes, future_sizes, misplaced):
    class Client:
        async def describe_log_dirs(self, broker: int, partitions: Any) -> list[LogDirDescription]:
            assert (broker, list(partitions)) == (1, [T0])
            return [
                LogDirDescription(
                    log_dir=path,
                    error_code=ErrorCode.none,
                    sizes={sizes[path]: 5} if path in sizes else {},
                    future_sizes={future_sizes[path]: 5} if path in future_sizes else {},
                    total_bytes=None,
                    usable_bytes=None,
                )
                for path in ("/a", "/b")
            ]

    client: Any = Client()
    assignment = read_assignment(file(plan(entry(log_dirs=["/a", "any"]))))
    assert asyncio.run(assignment.misplaced(client)) == misplaced
