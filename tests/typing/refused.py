"""Calls of the clients that mypy and basedpyright refuse: a comment that ignores no error is an error itself."""

from odradek.clients import Admin, Consumer, Producer, SimpleConsumer, ZookeeperConsumer, blocking
from odradek.clients.setting_types import ProducerConfig

SLOW: ProducerConfig = {"linger": 5}  # type: ignore[typeddict-unknown-key]  # pyright: ignore[reportAssignmentType]


def misspelt_keys() -> None:
    Producer(lingerms=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Consumer("t", groupid="g")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    SimpleConsumer(isolation="read_committed")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Admin(client="a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    ZookeeperConsumer(bootstrap_servers="a:1")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    blocking.Producer(lingerms=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    blocking.Consumer("t", groupid="g")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    blocking.SimpleConsumer(fetch_min=1)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    blocking.ZookeeperConsumer(groupid="g")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    blocking.Admin(client="a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def wrong_types() -> None:
    Producer(linger_ms="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Producer(compression_type="zip")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Producer(acks=2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Producer(client_id=None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Consumer(enable_auto_commit="no")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    blocking.Consumer(group_protocol="new")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def keys_of_other_clients() -> None:
    Admin(linger_ms=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    SimpleConsumer(session_timeout_ms=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


async def wrong_offsets(consumer: Consumer, reader: blocking.Consumer) -> None:
    await consumer.commit({"t": 5})  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
    await consumer.commit({("t", 0): "5"})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
    await consumer.end_offsets(["t"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    reader.beginning_offsets("t")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
