"""`odradek metadata adopt`: what it tells and what it refuses, of a directory in the form of Kafka's. Row M1."""

import json
import uuid
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from odradek.broker.log.checkpoints.meta_properties import encode_partition_metadata, encode_uuid
from odradek.broker.log.directories.kraft_metadata import FOLDER
from odradek.cli import main
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.primitives import encode_string
from odradek.runtime import SystemDisk
from odradek.testing.servers.odradek_process import ServedBroker

TOPIC_ID = uuid.UUID(int=0x1234 << 64)
CLUSTER = "T2RyYWRlayBwZWVyIGthZg"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions of one topic, which Kafka's controller has compacted, and led in epochs 4 and 7."""
    data = tmp_path / "data"
    for number, epoch in ((0, 4), (1, 7)):
        folder = data / f"t-{number}"
        folder.mkdir(parents=True)
        (folder / "partition.metadata").write_bytes(encode_partition_metadata(TOPIC_ID))
        (folder / "leader-epoch-checkpoint").write_text(f"0\n1\n{epoch} 0\n")
    (data / "meta.properties").write_text(f"version=1\nnode.id=3\ncluster.id={CLUSTER}\ndirectory.id=x\n")
    (data / FOLDER).mkdir()
    records = [(1, None, config(*pair), ()) for pair in (("cleanup.policy", "compact"), ("no.such.key", "1"))]
    (data / FOLDER / "00000000000000000000.log").write_bytes(encode_batch(records))
    return data


def config(key: str, value: str) -> bytes:
    texts = [encode_string(each, flexible=True) for each in ("t", key, value)]
    return bytes([1, 4, 0, 2]) + b"".join(texts) + b"\x00"


def adopt(data: Path, *options: str, tree: Path | None = None) -> Result:
    metadata = f"sqlite:///{tree or data.parent / 'tree.sqlite'}"
    return CliRunner().invoke(main, ["metadata", "adopt", "--metadata", metadata, *options, str(data)])


def rows(result: Result) -> list[dict[str, Any]]:
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.output.splitlines()]


def test_topics_are_adopted_with_their_ids_and_configurations(data: Path) -> None:
    wanted = {
        "name": "t",
        "topic_id": encode_uuid(TOPIC_ID),
        "partitions": 2,
        "config": {"cleanup.policy": "compact"},
        "ignored_config": {"no.such.key": "1"},
        "is_new": True,
    }
    assert rows(adopt(data, "--json")) == [wanted]
    assert rows(adopt(data, "--json")) == [{**wanted, "is_new": False}], "it may be done again"
    assert adopt(data).output.splitlines() == [
        "t: 2 partitions cleanup.policy=compact, known already; without no.such.key=1",
        f"1 topics; serve them with --data-dir {data} --broker-id 3 --metadata sqlite:///{data.parent}/tree.sqlite",
    ]


def test_an_adopted_broker_starts_with_the_next_epochs(data: Path) -> None:
    assert adopt(data).exit_code == 0
    with ServedBroker(data, options={"broker.id": "3"}, metadata=f"sqlite:///{data.parent}/tree.sqlite") as broker:
        command = ["topics", "describe", "t", "--json", "--bootstrap-server", broker.bootstrap_servers]
        output = CliRunner().invoke(main, command, catch_exceptions=False).output
    assert '"leader_epoch":5' in output
    assert '"leader_epoch":8' in output


def test_a_tree_in_the_directory_is_refused(data: Path) -> None:
    result = adopt(data, tree=data / "tree.sqlite")
    assert (result.exit_code, "where Kafka would refuse to start" in result.output) == (2, True)
    assert not (data / "tree.sqlite").exists()


def test_a_directory_in_use_is_refused(data: Path) -> None:
    lock = SystemDisk().lock(str(data / ".lock"), "somebody")
    result = adopt(data)
    lock.release()
    assert (result.exit_code, "in use by" in result.output) == (1, True)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda data: (data / "meta.properties").unlink(), "is not a data directory of a broker"),
        (lambda data: (data / "meta.properties").write_text("version=1\n"), "does not say whose"),
        (lambda data: (data / "t-0").rename(data / "t-5"), "only the partitions [1, 5]"),
        (
            lambda data: (data / "t-0" / "partition.metadata").write_bytes(
                encode_partition_metadata(uuid.uuid5(TOPIC_ID, "x"))
            ),
            "another topic t than its neighbours",
        ),
        (lambda data: (data / FOLDER / "00000000000000000000.log").write_bytes(b"x" * 100), "00000000000000000000.log"),
    ],
    ids=["no identity", "half an identity", "a gap", "two ids", "damage"],
)
def test_an_incomplete_directory_is_refused(data: Path, spoil: Any, said: str) -> None:
    spoil(data)
    result = adopt(data)
    assert result.exit_code == 1
    assert said in result.output


@pytest.mark.parametrize("content", [None, b"", b"version: 0\ntopic_id: ?"], ids=["missing", "empty", "damaged"])
@pytest.mark.parametrize("source", ["neighbour", "controller", "tree"])
def test_a_missing_topic_id_is_taken_from_other_folders(data: Path, content: bytes | None, source: str) -> None:
    if source == "tree":
        assert adopt(data).exit_code == 0
    elif source == "controller":
        record = bytes([1, 2, 0]) + encode_string("t", flexible=True) + TOPIC_ID.bytes + b"\x00"
        path = data / FOLDER / "00000000000000000000.log"
        path.write_bytes(encode_batch([(1, None, record, ())]) + path.read_bytes())
    for number in (0, 1) if source != "neighbour" else (1,):
        path = data / f"t-{number}" / "partition.metadata"
        path.unlink() if content is None else path.write_bytes(content)
    assert [row["topic_id"] for row in rows(adopt(data, "--json"))] == [encode_uuid(TOPIC_ID)]


def test_a_topic_without_an_id_is_left_out_and_the_others_are_adopted(data: Path) -> None:
    for number in (0, 1):
        (data / f"u-{number}").mkdir()
    result = adopt(data)
    assert result.exit_code == 1
    assert result.stdout.startswith("t: 2 partitions")
    assert result.stdout.count("\n") == 2
    assert f"the topic u is left as it is: {data}/u-0/partition.metadata (and 1 more)" in result.stderr
    assert "`topic_id: ID`" in result.stderr
    assert not list((data / "u-0").iterdir()), "nothing is written there"
    for number in (0, 1):
        (data / f"u-{number}" / "partition.metadata").write_bytes(encode_partition_metadata(uuid.UUID(int=5)))
    assert [row["name"] for row in rows(adopt(data, "--json"))] == ["t", "u"], "and once that is done, it comes too"


def test_topics_that_the_tree_has_with_other_ids_are_refused(data: Path) -> None:
    assert adopt(data).exit_code == 0
    for number in (0, 1):
        (data / f"t-{number}" / "partition.metadata").write_bytes(encode_partition_metadata(uuid.UUID(int=99)))
    assert "another topic t" in adopt(data).output
    (data / "meta.properties").write_text("version=1\nnode.id=3\ncluster.id=another\n")
    assert "is of cluster another, and the metadata of cluster" in adopt(data).output


@pytest.mark.parametrize(
    "arguments", [("forget-directory", "abc", "--broker-id", "0"), ("accept-loss", "t-0", "--broker-id", "0")]
)
def test_a_tree_that_is_missing_is_named_in_full_and_not_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, ["metadata", *arguments, "--metadata", "sqlite:///x"])
    assert (result.exit_code, result.stderr) == (1, f"odradek: there is no metadata database {tmp_path}/x\n")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_is_not_kafkas_leaves_no_tree_behind(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["metadata", "adopt", str(tmp_path), "--metadata", f"sqlite:///{tmp_path}-x"])
    assert "is not a data directory of a broker" in result.stderr
    assert not Path(f"{tmp_path}-x").exists()
