"""Kafka and our broker side by side: the same bytes go to both, and what comes back is compared.

An answer is compared as a plain value without what legitimately differs: the texts of errors, ids that are made by
chance, how long a client shall wait, addresses, and where a log begins beside an error, which Kafka tells with some. A
connection that is closed is an answer too.
"""

import asyncio
import contextlib
import dataclasses
import enum
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench.peers.kafka_peer import KafkaBroker
from odradek.broker.cluster.registration.broker_session import read_cluster_secret
from odradek.broker.security.request_proofs import RequestProofs
from odradek.metadata.image import ClusterImage
from odradek.metadata.nodes import ClusterSecretNode
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.headers import decode_response_header
from odradek.protocol.messages.message_codec import decode_response
from odradek.runtime import system_runtime
from odradek.simulation.wire_client import BlockingWireClient
from odradek.stores import open_store
from odradek.testing.conditions import eventually
from odradek.testing.servers.odradek_process import ServedBroker

CLOSED: Final = "the connection was closed"
SILENT: Final = "there was no answer"
SILENCE_S: Final = 3.0
"""How long nothing must come for it to be silence; asked only of who is known to say nothing."""
OPTIONS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "log.retention.ms": "-1",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "offsets.topic.num.partitions": "2",
    "auto.create.topics.enable": "false",
    "connections.max.idle.ms": "-1",  # other tests may run for longer between two that ask
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    "transaction.partition.verification.enable": "false",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.two.phase.commit.enable": "true",
}
KAFKA_OPTIONS: Final = {"broker.session.timeout.ms": "600000", "unstable.api.versions.enable": "true"}
"""On a busy machine, Kafka's broker misses heartbeats to its own controller, and leads nothing for a while. Requests of
two-phase commit have unstable versions."""
OUR_OPTIONS: Final = {"broker.id": "0", "log.validate.records": "all"}
"""Kafka looks into every record; ours where a rule of the topic asks for it, unless it is told to (decision 5)."""
_LEFT_OUT: Final = frozenset(
    {
        "error_message",
        "batch_index_error_message",
        "throttle_time",
        "host",
        "port",
        "log_dir",
        "total_bytes",
        "usable_bytes",
    }
)

DEADLINE_S: Final = 60.0
"""For an answer, of a broker that is not alone on its machine."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One request, for both.

    `settles`: Kafka's controller has answered before its broker knows, so it is asked until it agrees. `is_unordered`:
    the order of what is in the answer means nothing. `kafka_is_silent`: it answers some bad batches with nothing.
    """

    api: ApiKey
    version: int
    message: Mapping[str, Any]
    settles: bool = False
    is_unordered: bool = False
    kafka_is_silent: bool = False


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A sequence of requests. `differs` gives the reason for an intended difference of the responses."""

    name: str
    requests: Sequence[Request]
    differs: str = ""


Script = Callable[[Callable[..., Any]], None]
"""A sequence of requests whose messages need earlier answers: calls `ask(api, version, **message)` for each.

With `until`, a request is repeated until its answer has this text.
"""
_UNSETTLED: Final = frozenset(
    {"concurrent_transactions", "coordinator_load_in_progress", "coordinator_not_available", "not_coordinator"}
)
"""Errors of `Script`s that pass: markers are being written, or a coordinator starts."""


async def _secret(data_dir: Path) -> ClusterSecretNode:
    store = open_store(f"sqlite:///{data_dir}/metadata.sqlite", system_runtime())
    try:
        return await read_cluster_secret(store)
    finally:
        await store.close()


class BrokerPair:
    """A broker of ours and one of Kafka, each asked on a connection of its own."""

    def __init__(self, directory: Path) -> None:
        self.kafka = KafkaBroker(directory / "kafka", options=OPTIONS | KAFKA_OPTIONS, heap="384M", short_lived=True)
        self.ours = ServedBroker(directory / "ours", options=OPTIONS | OUR_OPTIONS)
        self._connections: dict[str, BlockingWireClient] = {}

    def start(self) -> None:
        """Start both brokers."""
        self.kafka.format()
        self.kafka.start()
        self.ours.start()
        self._image = ClusterImage(secret=asyncio.run(_secret(self.ours.data_dir)))

    def stop(self) -> None:
        """Stop both brokers cleanly."""
        self._hang_up()
        self.kafka.stop()
        self.ours.stop()

    def ask(self, request: Request) -> tuple[Any, Any]:
        """Return our answer and Kafka's."""
        if request.settles:
            with contextlib.suppress(TimeoutError):
                same = eventually(lambda: self._same_answers(request))
                assert same is not None
                return same
        ours = self._ask(self.ours.bootstrap_servers, request)
        return ours, self._ask(self.kafka.bootstrap_servers, request, is_silent=request.kafka_is_silent)

    def play(self, script: Script) -> tuple[list[Any], list[Any]]:
        """Return our answers to a script and Kafka's, with producer ids as `producer 0`, `producer 1`, …."""
        servers = (self.ours.bootstrap_servers, self.kafka.bootstrap_servers)
        ours, kafkas = (self._played(each, script) for each in servers)
        return ours, kafkas

    def _played(self, servers: str, script: Script) -> list[Any]:
        answers: list[Any] = []
        names: dict[int, str] = {}

        def ask(api: ApiKey, version: int, *, until: str = "", **message: Any) -> Any:
            request = Request(api=api, version=version, message=message)

            def settled() -> Any:
                answer = self._ask(servers, request)
                return None if _is_unsettled(answer) or until not in repr(answer) else answer

            answer = eventually(settled, within_s=DEADLINE_S, what=f"an answer to {request}")
            answers.append(sorted_answer(_with_names(answer, names)))
            return answer

        script(ask)
        return answers

    def _same_answers(self, request: Request) -> tuple[Any, Any] | None:
        ours, kafkas = self.ask(dataclasses.replace(request, settles=False))
        return (ours, kafkas) if ours == kafkas else None

    def partition_files(self, topic: str, partition: int, suffix: str) -> tuple[dict[str, bytes], dict[str, bytes]]:
        """Return the content of both brokers' files of a partition whose names end so, by name."""
        folders = [directory / f"{topic}-{partition}" for directory in (self.ours.data_dir, self.kafka.data_dir)]
        ours, kafkas = ({path.name: path.read_bytes() for path in folder.glob(f"*{suffix}")} for folder in folders)
        return ours, kafkas

    def agree(self, request: Request) -> Any:
        """Return the response of both brokers to a request that prepares a test."""
        ours, kafkas = self.ask(request)
        assert ours == kafkas, (ours, kafkas, request)
        return ours

    def create(self, topics: Mapping[str, Mapping[str, str]], partitions: int) -> None:
        """Create topics with these configurations, and wait until both take records for each partition."""
        wanted = [
            {
                "name": name,
                "num_partitions": partitions,
                "replication_factor": 1,
                "assignments": [],
                "configs": [{"name": key, "value": value} for key, value in config.items()],
            }
            for name, config in topics.items()
        ]
        message = {"topics": wanted, "timeout": int(DEADLINE_S * 1000), "validate_only": False}
        created = self.agree(Request(api=ApiKey.CREATE_TOPICS, version=4, message=message))
        assert {topic["error_code"] for topic in created["topics"]} == {"none"}, created
        places = [
            {"partition_index": place, "current_leader_epoch": -1, "timestamp": -1} for place in range(partitions)
        ]
        asked = [{"name": name, "partitions": places} for name in topics]
        request = Request(
            api=ApiKey.LIST_OFFSETS, version=4, message={"replica_id": -1, "isolation_level": 0, "topics": asked}
        )
        eventually(lambda: all(_has_leaders(answer) for answer in self.ask(request)), what="leaders")

    def _ask(self, servers: str, request: Request, *, is_silent: bool = False) -> Any:
        connection = self._connections.get(servers)
        if connection is None:
            connection = self._connections[servers] = BlockingWireClient(servers)
            if servers == self.ours.bootstrap_servers:
                connection.act_as_broker(RequestProofs(lambda: self._image, "").make)
        connection.set_timeout(SILENCE_S if is_silent else DEADLINE_S)
        connection.send(request.api, dict(request.message), request.version)
        try:
            frame = connection.receive()
        except TimeoutError:
            assert is_silent, f"no answer within {DEADLINE_S:g} s: {request}"
            self._connections.pop(servers).__exit__()
            return SILENT
        if frame is None:
            self._connections.pop(servers).__exit__()
            return CLOSED
        start = decode_response_header(request.api, request.version, frame)[1]
        answer = comparable(decode_response(request.api, request.version, frame, start))
        return sorted_answer(answer) if request.is_unordered else answer

    def _hang_up(self) -> None:
        while self._connections:
            self._connections.popitem()[1].__exit__()


def produce(
    topic: str,
    *batches: bytes | None,
    partition: int = 0,
    acks: int = -1,
    version: int = 9,
    transactional_id: str | None = None,
    kafka_is_silent: bool = False,
) -> Request:
    """A request with these batches, one after the other, in one partition; None for no records at all."""
    records = None if batches == (None,) else b"".join(each or b"" for each in batches)
    partitions = [{"index": partition, "records": records}]
    message = {
        "transactional_id": transactional_id,
        "acks": acks,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "partition_data": partitions}],
    }
    return Request(api=ApiKey.PRODUCE, version=version, message=message, kafka_is_silent=kafka_is_silent)


def comparable(value: Any) -> Any:
    """A decoded answer as dicts, lists and plain values, without what legitimately differs."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value) if field.name not in _LEFT_OUT]
        fields = {name: comparable(getattr(value, name)) for name in names}
        if fields.get("error_code") != "none":
            fields.pop("log_start_offset", None)
        if "topic_config_error_code" in fields:
            fields.pop("configs", None)  # all of a new topic's: each has keys that the other lacks
        return fields
    if isinstance(value, tuple | list):
        return [comparable(each) for each in value]
    if isinstance(value, enum.Enum):
        return value.name
    return "an id" if isinstance(value, uuid.UUID) and value.int else value


def _is_unsettled(answer: Any) -> bool:
    text = repr(answer)
    return any(code in text for code in _UNSETTLED)


def _with_names(value: Any, names: dict[int, str]) -> Any:
    """Return an answer with names in place of producer ids, which two clusters allocate differently."""
    if isinstance(value, list):
        return [_with_names(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: names.setdefault(each, f"producer {len(names)}")
        if key.endswith("producer_id") and each >= 0
        else (each.timestamp() >= 0 if key == "transaction_start_time" else _with_names(each, names))
        for key, each in value.items()
    }


def _has_leaders(answer: Any) -> bool:
    """Return whether a ListOffsets answer has an offset for each partition."""
    partitions = [partition for topic in answer["topics"] for partition in topic["partitions"]]
    return all(partition["error_code"] == "none" for partition in partitions)


def sorted_answer(value: Any) -> Any:
    """Return an answer with every list sorted."""
    if isinstance(value, dict):
        return {name: sorted_answer(each) for name, each in value.items()}
    return sorted(map(sorted_answer, value), key=repr) if isinstance(value, list) else value


def check(pair: BrokerPair, case: Case) -> None:
    """Ask both; a difference that is on purpose must be one."""
    requests = [dataclasses.replace(each, settles=each.settles and not case.differs) for each in case.requests]
    answers = [pair.ask(request) for request in requests]
    ours, kafkas = [ours for ours, _ in answers], [kafkas for _, kafkas in answers]
    if case.differs:
        assert ours != kafkas, f"no longer true: {case.differs}"
    else:
        assert ours == kafkas, f"ours: {ours}\nKafka's: {kafkas}"
