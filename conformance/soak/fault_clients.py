"""Clients that others wrote, each writing or reading in a thread through whatever happens, and recording a history.

A writer sends to every partition in turn, a few dozen records ahead of their acknowledgements; a reader reads every
partition from its beginning. A client that gives up for good is made anew under another name, as an application does.
"""

import asyncio
import logging
import threading
import traceback
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Final

import aiokafka
import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors

from odradek.model import TopicPartition
from odradek.runtime import SystemClock
from odradek.simulation.histories import History, Send

WINDOW: Final = 40
"""Records of one writer that are not acknowledged yet: while a partition has no leader, its writer keeps still."""

CLOCK: Final = SystemClock()
PACE_S: Final = 0.01
REQUEST_TIMEOUT_MS: Final = 5_000
"""A broker that stands still answers nothing, and closes nothing: only time tells."""

_LINES_KEPT: Final = 50_000

LAST_WORDS_S: Final = 120.0
"""How long what is on its way may take to arrive when a writer stops, and a reader's last poll."""


class Worker:
    """One client in a thread of its own. `errors` are what the client said went wrong; none of them is an anomaly."""

    kind: str
    does: str

    def __init__(self, servers: str, topic: str, partitions: int, history: History) -> None:
        self.servers = servers
        self.topic = topic
        self.places = [TopicPartition(topic, number) for number in range(partitions)]
        self.history = history
        self.lives = 0
        self.errors: Counter[str] = Counter()
        self.stopping = threading.Event()
        self._crash: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"{self.kind} {self.does}", daemon=True)

    @property
    def name(self) -> str:
        """This client's, and none that came before it."""
        return f"{self.kind}.{self.lives}"

    def start(self) -> None:
        """Begin, until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Let what is on its way arrive, and end. Raises what ended the thread early."""
        self.stopping.set()
        self._thread.join(2 * LAST_WORDS_S)
        self.check()
        assert not self._thread.is_alive(), f"{self._thread.name} does not end"

    def check(self) -> None:
        """Raise what ended the thread early, if something did."""
        if self._crash is not None:
            raise RuntimeError(f"{self._thread.name} has crashed") from self._crash

    def _run(self) -> None:
        try:
            while not self.stopping.is_set():
                self.lives += 1
                self.live()
        except BaseException as error:
            error.add_note("".join(traceback.format_exception(error)))
            self._crash = error

    def live(self) -> None:
        """One client from start to end; returning before `stopping` is set asks for another."""
        raise AssertionError


class Writer(Worker):
    """Sends `{name}-{partition}-{number}` and notes what becomes of it."""

    does = "writer"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.acknowledged: Counter[TopicPartition] = Counter()
        self.unanswered = 0
        self._sent: Counter[TopicPartition] = Counter()
        self._lock = threading.Lock()

    def next_send(self, place: TopicPartition) -> Send:
        """A record that is about to be sent."""
        value = f"{self.name}-{place.partition}-{self._sent[place]}".encode()
        self._sent[place] += 1
        with self._lock:
            self.unanswered += 1
        return self.history.send(self.name, place, value, now=CLOCK.monotonic())

    def answered(self, send: Send, offset: int | None, error: object = None) -> None:
        """Record the client's report on a record. After an error it may be in the log or not."""
        with self._lock:
            self.unanswered -= 1
        if error is None:
            send.acknowledge(offset if offset is not None and offset >= 0 else None, now=CLOCK.monotonic())
            self.acknowledged[send.partition] += 1
        else:
            self.errors[f"{type(error).__name__}: {error}"[:200]] += 1

    @property
    def has_room(self) -> bool:
        """Whether another record may be sent."""
        return self.unanswered < WINDOW

    def live(self) -> None:
        """Write until stopped."""
        with self._lock:
            self.unanswered = 0
        self._sent.clear()
        self.write()

    def write(self) -> None:
        """Send until `stopping` is set, then wait for the answers."""
        raise AssertionError


class Reader(Worker):
    """Reads every partition from its beginning; `next_offset` is its position.

    It starts again after an out-of-range error: a former leader that does not know of the next one may have fewer
    records. The second reading then shows whether records are missing.
    """

    does = "reader"

    def __init__(self, *arguments: Any, isolation: str = "read_uncommitted") -> None:
        super().__init__(*arguments)
        self.isolation = isolation
        self.next_offset: Counter[TopicPartition] = Counter()

    @property
    def name(self) -> str:
        """This client's, and no other's that reads the same topic."""
        return f"{super().name} {self.isolation}"

    def got(self, partition: int, offset: int, value: bytes) -> None:
        """A record came."""
        place = self.places[partition]
        self.history.poll(self.name, place, offset, value)
        self.next_offset[place] = offset + 1


class ConfluentWriter(Writer):
    """confluent-kafka (librdkafka), idempotent. `said` is what it logged last about its producer id and sequences."""

    kind = "confluent-kafka"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.said: deque[str] = deque(maxlen=_LINES_KEPT)
        self._logger = logging.Logger(self.kind)
        self._logger.addHandler(_Keeper(self.said))

    def write(self) -> None:
        producer = confluent_kafka.Producer(
            {
                "debug": "eos,msg",
                "bootstrap.servers": self.servers,
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": int(LAST_WORDS_S * 1000),
                "request.timeout.ms": REQUEST_TIMEOUT_MS,
                "socket.timeout.ms": REQUEST_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 500,
                "retry.backoff.max.ms": 200,
            },
            logger=self._logger,
        )
        while not self.stopping.is_set() and producer_is_well(self, producer):
            for place in self.places:
                if self.has_room:
                    send = self.next_send(place)
                    producer.produce(self.topic, send.value, partition=place.partition, on_delivery=self._noting(send))
            producer.poll(PACE_S)
        producer.flush(LAST_WORDS_S)

    def _noting(self, send: Send) -> Any:
        return lambda error, message: self.answered(send, None if error else message.offset(), error)


class _Keeper(logging.Handler):
    """Appends lines to a list, with their times."""

    def __init__(self, lines: deque[str]) -> None:
        super().__init__()
        self._lines = lines
        self.setFormatter(logging.Formatter("%(asctime)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(self.format(record))


def producer_is_well(writer: Writer, producer: Any) -> bool:
    """Whether librdkafka's producer can go on."""
    fatal = producer.fatal_error() if hasattr(producer, "fatal_error") else None
    if fatal is not None:
        writer.errors[f"fatal: {fatal}"] += 1
    return fatal is None


class ConfluentReader(Reader):
    """confluent-kafka's consumer."""

    kind = "confluent-kafka"

    def live(self) -> None:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.servers,
                "group.id": "not a group's",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "isolation.level": self.isolation,
                "fetch.wait.max.ms": 100,
                "socket.timeout.ms": REQUEST_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        consumer.assign([confluent_kafka.TopicPartition(self.topic, place.partition, 0) for place in self.places])
        is_lost = False
        while not self.stopping.is_set() and not is_lost:
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    self.got(message.partition(), message.offset(), message.value())
                else:
                    self.errors[str(message.error())[:200]] += 1
                    is_lost |= message.error().code() == confluent_kafka.KafkaError._AUTO_OFFSET_RESET
        consumer.close()


class KafkaPythonWriter(Writer):
    """kafka-python, which is idempotent unless told otherwise."""

    kind = "kafka-python"

    def write(self) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self.servers.split(","),
            acks="all",
            linger_ms=2,
            enable_idempotence=True,
            reconnect_backoff_max_ms=500,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            max_block_ms=int(LAST_WORDS_S * 1000),
        )
        try:
            while not self.stopping.wait(PACE_S):
                for place in self.places:
                    if self.has_room:
                        self._send(producer, place)
            producer.flush(LAST_WORDS_S)
        except kafka.errors.KafkaError as error:
            self.errors[f"{type(error).__name__}: {error}"[:200]] += 1
        finally:
            producer.close(timeout=LAST_WORDS_S if self.stopping.is_set() else 0)

    def _send(self, producer: Any, place: TopicPartition) -> None:
        send = self.next_send(place)
        future = producer.send(self.topic, send.value, partition=place.partition)
        future.add_callback(lambda metadata: self.answered(send, metadata.offset))
        future.add_errback(lambda error: self.answered(send, None, error))


class KafkaPythonReader(Reader):
    """kafka-python's consumer."""

    kind = "kafka-python"

    def live(self) -> None:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.servers.split(","),
            group_id=None,
            auto_offset_reset="none",
            fetch_max_wait_ms=100,
            reconnect_backoff_max_ms=500,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            metadata_max_age_ms=5_000,
            isolation_level=self.isolation,
        )
        places = [kafka.TopicPartition(self.topic, place.partition) for place in self.places]
        try:
            consumer.assign(places)
            for place in places:
                consumer.seek(place, 0)
            while not self.stopping.is_set():
                for records in consumer.poll(timeout_ms=100).values():
                    for record in records:
                        self.got(record.partition, record.offset, record.value)
        except kafka.errors.OffsetOutOfRangeError as error:
            self.errors[f"{type(error).__name__}: {error}"[:200]] += 1
        finally:
            consumer.close(autocommit=False)


class AiokafkaWriter(Writer):
    """aiokafka, idempotent, on an event loop of its own.

    A batch that it gives up leaves a gap in its sequence, after which every batch is refused: then it is made anew.
    """

    kind = "aiokafka"

    def write(self) -> None:
        self._has_gap = False
        asyncio.run(self._write())

    async def _write(self) -> None:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=self.servers,
            enable_idempotence=True,
            linger_ms=2,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            metadata_max_age_ms=5_000,
        )
        await producer.start()
        try:
            while not self.stopping.is_set() and not self._has_gap:
                for place in self.places:
                    if self.has_room:
                        await self._send(producer, place)
                await asyncio.to_thread(self.stopping.wait, PACE_S)
            await asyncio.wait_for(producer.flush(), LAST_WORDS_S)
        except (aiokafka.errors.KafkaError, TimeoutError) as error:
            self.errors[f"{type(error).__name__}: {error}"[:200]] += 1
        finally:
            await asyncio.wait_for(producer.stop(), LAST_WORDS_S)

    async def _send(self, producer: Any, place: TopicPartition) -> None:
        send = self.next_send(place)
        future = await producer.send(self.topic, send.value, partition=place.partition)
        future.add_done_callback(lambda done: self._note(send, done))

    def _note(self, send: Send, done: "asyncio.Future[Any]") -> None:
        if done.cancelled() or done.exception() is not None:
            self._has_gap |= not done.cancelled() and isinstance(
                done.exception(), aiokafka.errors.OutOfOrderSequenceNumber
            )
            self.answered(send, None, "cancelled" if done.cancelled() else done.exception())
        else:
            self.answered(send, done.result().offset)


class AiokafkaReader(Reader):
    """aiokafka's consumer."""

    kind = "aiokafka"

    def live(self) -> None:
        asyncio.run(self._read())

    async def _read(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.servers,
            auto_offset_reset="none",
            fetch_max_wait_ms=100,
            request_timeout_ms=REQUEST_TIMEOUT_MS,
            metadata_max_age_ms=5_000,
            isolation_level=self.isolation,
        )
        await consumer.start()
        try:
            places = [aiokafka.TopicPartition(self.topic, place.partition) for place in self.places]
            consumer.assign(places)
            for place in places:
                consumer.seek(place, 0)
            while not self.stopping.is_set():
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    for record in records:
                        self.got(record.partition, record.offset, record.value)
        except aiokafka.errors.OffsetOutOfRangeError as error:
            self.errors[f"{type(error).__name__}: {error}"[:200]] += 1
        finally:
            await consumer.stop()


WRITERS: Final = (ConfluentWriter, AiokafkaWriter, KafkaPythonWriter)
READERS: Final = (ConfluentReader, AiokafkaReader, KafkaPythonReader)


def read_logs(servers: str, topic: str, partitions: int) -> dict[TopicPartition, Sequence[tuple[int, bytes]]]:
    """All that is in a topic at this moment and committed, by partition, as `(offset, value)`."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "none",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    found: dict[TopicPartition, Sequence[tuple[int, bytes]]] = {}
    for number in range(partitions):
        place = confluent_kafka.TopicPartition(topic, number, 0)
        end = _end_of(consumer, place)
        found[TopicPartition(topic, number)] = log = []
        consumer.assign([place])
        until = CLOCK.monotonic() + LAST_WORDS_S
        reached = 0
        while reached < end:
            assert CLOCK.monotonic() < until, f"only {reached} of {end} offsets of {topic}-{number} can be read"
            for message in consumer.consume(1_000, 0.1):
                error = message.error()
                if error is None:
                    log.append((message.offset(), message.value()))
                elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    reached = message.offset()  # behind the last transaction's marker, which is not a message
                else:
                    raise AssertionError(str(error))
    consumer.close()
    return found


def _end_of(consumer: Any, place: Any) -> int:
    """Where a partition ends; asked again where its leader has just changed, which librdkafka doesn't do by itself."""
    until = CLOCK.monotonic() + LAST_WORDS_S
    while True:
        try:
            return int(consumer.get_watermark_offsets(place, timeout=LAST_WORDS_S)[1])
        except confluent_kafka.KafkaException as error:
            if CLOCK.monotonic() > until or error.args[0].code() != confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION:
                raise
            threading.Event().wait(PACE_S)
