"""M4, M12: the consumer of generation 1 without asyncio."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from odradek.clients import TopicFilter
from odradek.clients.blocking import ZookeeperConsumer
from odradek.clients.zookeeper_consumer import ConsumerTimeoutError
from odradek.clients.zookeeper_consumer.machine.view import Ownership
from odradek.testing import Cluster

SETTINGS: dict[str, Any] = {"group_id": "readers", "auto_offset_reset": "smallest"}


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    """The tree of a broker with a topic of two partitions, and ten records in each."""
    with Cluster(data_dir=tmp_path) as cluster:
        with cluster.admin() as admin:
            admin.create_topic("t", partitions=2)
        with cluster.producer() as producer:
            for number in range(20):
                producer.send("t", b"%d" % number, partition=number % 2)
        yield f"sqlite:///{tmp_path}/metadata.sqlite"


def test_each_stream_is_read_by_a_thread_and_ends_when_the_consumer_closes(url: str) -> None:
    told: list[tuple[Ownership, threading.Thread]] = []
    found: list[set[bytes | None]] = [set(), set()]
    both_done = threading.Barrier(3)

    def read(number: int) -> None:
        found[number].update(record.value for record in islice(streams[number], 10))
        both_done.wait(30)
        assert list(streams[number]) == [], "it waits until the consumer closes"

    with ThreadPoolExecutor(2) as threads:
        with ZookeeperConsumer(url, consumer_id="alpha", **SETTINGS) as consumer:
            consumer.set_consumer_rebalance_listener(
                before_starting_fetchers=lambda owned: told.append((owned, threading.current_thread()))
            )
            streams = consumer.create_message_streams({"t": 2})["t"]
            assert [stream.thread_id for stream in streams] == ["readers_alpha-0", "readers_alpha-1"]
            assert consumer.owned() == {("t", 0): "readers_alpha-0", ("t", 1): "readers_alpha-1"}
            assert told == [(consumer.owned(), threading.current_thread())]
            reading = [threads.submit(read, number) for number in (0, 1)]
            both_done.wait(30)
        for each in reading:
            each.result(30)
    assert found == [{b"%d" % number for number in range(first, 20, 2)} for first in (0, 1)]


def test_a_filter_gives_a_list_of_streams_and_commits_include_the_last_record(url: str) -> None:
    for values in ([b"0", b"2"], [b"4", b"6"]):
        with ZookeeperConsumer(url, auto_commit_enable=False, **SETTINGS) as consumer:
            (stream, _) = consumer.create_message_streams_by_filter(TopicFilter(expression="t|u"), 2)
            assert [next(stream).value for _ in values] == values
            consumer.commit_offsets()


def test_a_stream_without_records_raises_the_timeout_in_the_readers_thread(url: str) -> None:
    with ZookeeperConsumer(url, consumer_timeout_ms=1, group_id="readers") as consumer:
        (stream,) = consumer.create_message_streams({"t": 1})["t"]
        with pytest.raises(ConsumerTimeoutError, match="no record within 1 ms"):
            next(stream)
