"""`for record in consumer`: records come in runs, and positions are those of a loop that asks for each record (M12)."""

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from odradek.clients import RecordDeserializationError
from odradek.clients.blocking import Consumer
from odradek.clients.consumer import ConsumerInterceptor, ConsumerRecord
from odradek.model import TopicPartition

COUNT = 40


@pytest.fixture
def topic(kafka: Any, request: pytest.FixtureRequest) -> str:
    """A topic with `COUNT` records in each of two partitions, four to a batch; its name is the test's."""
    name: str = request.node.name.replace("[", "-").replace("]", "")
    kafka.create_topic(name, partitions=2)
    with kafka.producer(linger_ms=0) as producer:
        for first in range(0, COUNT, 4):
            for partition in range(2):
                for number in range(first, first + 4):
                    producer.send(name, b"%d" % number, partition=partition)
            producer.flush()
    return name


@pytest.fixture
def consumer(kafka: Any, topic: str) -> Iterator[Consumer]:
    with kafka.consumer(topic, group_id=topic, enable_auto_commit=False) as made:
        yield made


def positions(consumer: Consumer, topic: str) -> list[int]:
    return [consumer.position((topic, partition)) for partition in range(2)]


def counts(records: list[ConsumerRecord]) -> list[int]:
    return [sum(record.partition == partition for record in records) for partition in range(2)]


@pytest.mark.parametrize("stops_after", [1, 3, 4, 5, 11, 2 * COUNT])
def test_a_loop_that_breaks_has_read_exactly_the_records_it_got(
    kafka: Any, topic: str, consumer: Consumer, stops_after: int
) -> None:
    """M12, M8: also where the position is asked for after each record, as here."""
    got = []
    for record in consumer:
        got.append(record)
        if len(got) == stops_after:
            break
        assert positions(consumer, topic) == counts(got)
    consumer.commit()
    with kafka.admin() as admin:
        committed = admin.list_group_offsets([topic])[topic]
    assert [committed[TopicPartition(topic, number)].offset for number in range(2)] == counts(got)


def test_iterating_and_polling_take_turns(topic: str, consumer: Consumer) -> None:
    """M12: each record comes once and in order; a paused partition returns none, and goes on where it was."""
    got = [next(consumer) for _ in range(6)]
    got += consumer.poll(10_000, max_records=3)
    paused = got[-1].partition
    got.append(next(consumer))
    consumer.pause((topic, paused))
    others = [next(consumer) for _ in range(8)]
    assert {record.partition for record in others} == {1 - paused}
    consumer.resume((topic, paused))
    got += others
    while len(got) < 2 * COUNT:
        got.append(next(consumer))
    for partition in range(2):
        assert [record.offset for record in got if record.partition == partition] == list(range(COUNT))


def test_a_seek_between_two_records_is_where_the_next_one_comes_from(topic: str, consumer: Consumer) -> None:
    first = next(consumer)
    consumer.pause((topic, 1 - first.partition))
    for offset in (17, 2, 39):
        consumer.seek((topic, first.partition), offset)
        assert next(consumer).offset == offset


def test_automatic_commits_are_of_the_records_that_the_loop_got(kafka: Any, topic: str) -> None:
    """M8: closing commits, with the rest of a run in memory."""
    with kafka.consumer(topic, group_id="automatic") as consumer:
        got = [next(consumer) for _ in range(6)]
    with kafka.admin() as admin:
        committed = admin.list_group_offsets(["automatic"])["automatic"]
    offsets = [committed[TopicPartition(topic, number)].offset for number in range(2)]
    assert offsets == counts(got)


def test_a_record_that_cannot_be_deserialized_is_an_error_in_its_place(kafka: Any, topic: str) -> None:
    def fails_at_seven(value: bytes) -> Any:
        return json.loads("{" if value == b"7" else value)

    with kafka.consumer(group_id=topic, value_deserializer=fails_at_seven) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [next(consumer).value for _ in range(7)] == list(range(7))
        for _ in range(2):
            with pytest.raises(RecordDeserializationError) as caught:
                next(consumer)
            assert (caught.value.offset, consumer.position((topic, 0))) == (7, 7)
        consumer.seek((topic, 0), 8)
        assert [next(consumer).value for _ in range(8, COUNT)] == list(range(8, COUNT))


class EveryOther(ConsumerInterceptor):
    """Leaves out records with odd offsets."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        return [record for record in records if record.offset % 2 == 0]


def test_an_interceptor_may_leave_records_out(kafka: Any, topic: str) -> None:
    with kafka.consumer(group_id=topic, interceptors=[EveryOther()]) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert [next(consumer).offset for _ in range(COUNT // 2)] == list(range(0, COUNT, 2))


def test_metrics_count_the_records_that_the_loop_got(consumer: Consumer) -> None:
    for number in range(1, 12):
        next(consumer)
        assert consumer.metrics()["records_consumed_total"] == number


def test_several_threads_share_the_records_of_one_iterator(topic: str, consumer: Consumer) -> None:
    """M12: none comes twice or is left out."""
    got: list[list[ConsumerRecord]] = [[], [], []]
    left = threading.Semaphore(2 * COUNT)

    def read(mine: list[ConsumerRecord]) -> None:
        while left.acquire(blocking=False):
            mine.append(next(consumer))
            consumer.position((topic, 0))

    threads = [threading.Thread(target=read, args=(mine,)) for mine in got]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    found = [(record.partition, record.offset) for mine in got for record in mine]
    assert sorted(found) == [(partition, offset) for partition in range(2) for offset in range(COUNT)]
