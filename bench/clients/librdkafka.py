"""A producer and a consumer that call librdkafka's C functions, without a Python object per record.

For records of 100 bytes, confluent-kafka's objects cost more than a broker, and would dominate a comparison. The
library is the one in confluent-kafka; its documentation is `rdkafka.h`.
"""

import ctypes
import functools
import json
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

CLIENT_SETTINGS: Final = "ODRADEK_BENCH_CLIENT"
"""The environment variable with more settings of librdkafka, as a JSON object: those of security."""
_PRODUCER: Final = 0
_CONSUMER: Final = 1
_BLOCK: Final = 4
"""RD_KAFKA_MSG_F_BLOCK: wait while the queue is full. Without other flags, records are not copied."""
_ERROR_BYTES: Final = 512
_ANSWER_MS: Final = 10_000
_LEADER_S: Final = 30.0


def settings_of(bootstrap_servers: str) -> dict[str, object]:
    """Return a client's settings of its connections."""
    return {"bootstrap.servers": bootstrap_servers, **json.loads(os.environ.get(CLIENT_SETTINGS, "{}"))}


class _Message(ctypes.Structure):
    """`rd_kafka_message_t`."""

    _fields_ = (
        ("err", ctypes.c_int),
        ("rkt", ctypes.c_void_p),
        ("partition", ctypes.c_int32),
        ("payload", ctypes.c_char_p),
        ("len", ctypes.c_size_t),
        ("key", ctypes.c_char_p),
        ("key_len", ctypes.c_size_t),
        ("offset", ctypes.c_int64),
        ("private", ctypes.c_void_p),
    )


@functools.cache
def _library() -> ctypes.CDLL:
    from confluent_kafka import cimpl

    # Symbols are also found in the libraries that an extension module is linked with.
    library = ctypes.CDLL(cimpl.__file__)
    for name in ("conf_new", "new", "queue_new", "topic_new"):
        getattr(library, f"rd_kafka_{name}").restype = ctypes.c_void_p
    return library


class _Client:
    """An `rd_kafka_t` with its topics. Call `close` at the end."""

    def __init__(self, kind: int, settings: Mapping[str, object]) -> None:
        self._library = library = _library()
        error = ctypes.create_string_buffer(_ERROR_BYTES)
        conf = ctypes.c_void_p(library.rd_kafka_conf_new())
        for key, value in {"log_level": 0, **settings}.items():
            if library.rd_kafka_conf_set(conf, key.encode(), str(value).encode(), error, _ERROR_BYTES):
                raise ValueError(error.value.decode())
        self._handle = ctypes.c_void_p(library.rd_kafka_new(kind, conf, error, _ERROR_BYTES))
        if not self._handle:
            raise ValueError(error.value.decode())
        self._topics: dict[str, ctypes.c_void_p] = {}

    def _topic(self, name: str) -> ctypes.c_void_p:
        if name not in self._topics:
            topic = self._library.rd_kafka_topic_new(self._handle, name.encode(), None)
            self._topics[name] = ctypes.c_void_p(topic)
        return self._topics[name]

    def end_offset(self, topic: str, partition: int) -> int:
        """Return the end offset of a partition; wait for a leader."""
        low, high = ctypes.c_int64(), ctypes.c_int64()
        until = time.perf_counter() + _LEADER_S
        while True:
            error = self._library.rd_kafka_query_watermark_offsets(
                self._handle,
                topic.encode(),
                ctypes.c_int32(partition),
                ctypes.byref(low),
                ctypes.byref(high),
                _ANSWER_MS,
            )
            if not error:
                return high.value
            assert time.perf_counter() < until, f"librdkafka's error {error} for the end of partition {partition}"
            time.sleep(0.01)

    def close(self) -> None:
        """Disconnect."""
        for topic in self._topics.values():
            self._library.rd_kafka_topic_destroy(topic)
        self._library.rd_kafka_destroy(self._handle)


class Messages:
    """Records, with or without keys, that can be produced repeatedly."""

    def __init__(self, values: Sequence[bytes], keys: Sequence[bytes] | None = None) -> None:
        self.count = len(values)
        self.array: Any = (_Message * self.count)()
        self._bytes = values, keys
        for number, value in enumerate(values):
            self.array[number].payload, self.array[number].len = value, len(value)
        for number, key in enumerate(keys or ()):
            self.array[number].key, self.array[number].key_len = key, len(key)


class CProducer(_Client):
    """Produces as fast as librdkafka can. Delivery errors are not reported: compare `end_offset`."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        super().__init__(_PRODUCER, settings)

    def produce(self, topic: str, partition: int, messages: Messages) -> None:
        """Pass all messages to librdkafka; wait while its queue is full."""
        taken = self._library.rd_kafka_produce_batch(
            self._topic(topic), ctypes.c_int32(partition), _BLOCK, messages.array, messages.count
        )
        assert taken == messages.count, f"librdkafka took {taken} of {messages.count} records"

    def flush(self, seconds: float) -> None:
        """Wait until every record is acknowledged or has failed."""
        error = self._library.rd_kafka_flush(self._handle, int(seconds * 1000))
        assert not error, f"records are not acknowledged after {seconds} seconds"


class CConsumer(_Client):
    """Consumes as fast as librdkafka can, and only counts records."""

    def __init__(self, settings: Mapping[str, object]) -> None:
        super().__init__(_CONSUMER, settings)
        self._queue = ctypes.c_void_p(self._library.rd_kafka_queue_new(self._handle))
        # The callback for each record must be a C function that accepts anything and changes nothing.
        self._nothing = ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p)
        self._started: list[tuple[str, int]] = []

    def start(self, topic: str, partition: int) -> None:
        """Read a partition from offset 0 on."""
        self._started.append((topic, partition))
        error = self._library.rd_kafka_consume_start_queue(
            self._topic(topic), ctypes.c_int32(partition), ctypes.c_int64(0), self._queue
        )
        assert not error, f"partition {partition} can't be read"

    def consume(self, seconds: float) -> int:
        """Wait at most `seconds` for records; return the number of those received at once.

        librdkafka counts the start of each partition as a record, which does not matter among thousands.
        """
        count: int = self._library.rd_kafka_consume_callback_queue(
            self._queue, int(seconds * 1000), self._nothing, None
        )
        return count

    def close(self) -> None:
        """Stop reading, and disconnect."""
        for topic, partition in self._started:
            self._library.rd_kafka_consume_stop(self._topic(topic), ctypes.c_int32(partition))
        self._library.rd_kafka_queue_destroy(self._queue)
        super().close()
