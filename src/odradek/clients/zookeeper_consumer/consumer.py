"""`ZookeeperConsumer`, the public class: create streams and commit offsets."""

from collections.abc import Mapping
from types import TracebackType
from typing import Self, Unpack

from odradek.assignors import Assignor, create_assignor
from odradek.clients.setting_types import ZookeeperConsumerConfig
from odradek.clients.zookeeper_consumer.machine.membership import State
from odradek.clients.zookeeper_consumer.machine.registration import ThreadCounts, TopicFilter, thread_id, unique_name
from odradek.clients.zookeeper_consumer.machine.view import Ownership
from odradek.clients.zookeeper_consumer.rebalance_listener import RebalanceCallback, RebalanceListener
from odradek.clients.zookeeper_consumer.rebalancer import ANY_TOPIC, Rebalancer
from odradek.clients.zookeeper_consumer.settings import zookeeper_consumer_settings, zookeeper_strategy
from odradek.clients.zookeeper_consumer.streams import KafkaStream
from odradek.config.zookeeper import tree_url
from odradek.metadata.store import Store
from odradek.model import ConfigurationError, UnavailableError
from odradek.runtime import Runtime, system_runtime
from odradek.runtime.entropy import uuid4
from odradek.stores import open_store


class ZookeeperConsumer:
    """Kafka 0.8's high-level consumer: the consumers of a group share partitions through nodes in the metadata tree.

        async with ZookeeperConsumer("zookeeper://localhost:2181/kafka", group_id="readers") as consumer:
            streams = await consumer.create_message_streams({"flights": 2})
            async for record in streams["flights"][0]:
                print(record.key, record.value)

    `zookeeper_connect` is the URL that brokers get as `--metadata`: `zookeeper://HOST:PORT[,…]/CHROOT` (the scheme is
    optional) or `sqlite:///PATH`. Settings are those of Kafka 0.8 with `_` for `.` (`zookeeper_consumer.settings`).
    Every consumer computes the whole assignment, so all consumers of a group need the same, deterministic
    `partition_assignment_strategy`; `range`, `roundrobin` and the class names of Kafka 0.8 mean its rules. `store`, an
    open session, replaces the URL; `close` closes the store. Raises `ConfigurationError` for unknown settings and
    invalid values.
    """

    def __init__(
        self,
        zookeeper_connect: str = "zookeeper://localhost:2181",
        *,
        partition_assignment_strategy: str | Assignor = "zookeeper-range",
        runtime: Runtime | None = None,
        store: Store | None = None,
        **settings: Unpack[ZookeeperConsumerConfig],
    ) -> None:
        self._settings = zookeeper_consumer_settings(settings)
        self._url = tree_url(zookeeper_connect)
        self._runtime = runtime or system_runtime()
        try:
            self._assignor = create_assignor(zookeeper_strategy(partition_assignment_strategy))
        except ValueError as error:
            raise ConfigurationError(str(error)) from None
        self._given_store = store
        self._store: Store | None = None
        self._rebalancer: Rebalancer | None = None
        self._listener = RebalanceListener()
        clock, entropy = self._runtime.clock, self._runtime.entropy
        name = self._settings.consumer_id or unique_name(
            self._runtime.network.host_name, clock.now_ms(), uuid4(entropy)
        )
        self.consumer_id: str = f"{self._settings.group_id}_{name}"

    async def start(self) -> Self:
        """Open a session with the tree; `async with` calls this.

        Raises `ConfigurationError` for an invalid URL, `StorageError` if there is no tree or it cannot be opened.
        """
        if self._store is None:
            self._store = self._given_store or open_store(
                self._url,
                self._runtime,
                session_timeout_ms=self._settings.zookeeper_session_timeout_ms,
                connection_timeout_ms=self._settings.zookeeper_connection_timeout_ms,
                must_exist=True,
                zookeeper=self._settings,
            )
        return self

    def set_consumer_rebalance_listener(
        self,
        *,
        before_releasing_partitions: RebalanceCallback | None = None,
        before_starting_fetchers: RebalanceCallback | None = None,
    ) -> None:
        """Set the callbacks of rebalances, before the streams are created.

        The first one gets the partitions that the consumer reads no more and is about to release; it may call
        `commit_offsets`. The second one gets those that the consumer has claimed and is about to read, possibly none.
        If a callback raises an `OdradekError`, the attempt has failed; another exception ends the streams, and the
        consumer leaves.
        """
        if self._rebalancer is not None:
            raise ConfigurationError("the consumer has its streams: set the rebalance listener before")
        self._listener = RebalanceListener(
            before_releasing_partitions=before_releasing_partitions, before_starting_fetchers=before_starting_fetchers
        )

    async def create_message_streams(self, topic_counts: Mapping[str, int]) -> dict[str, list[KafkaStream]]:
        """Join the group and return streams for each topic; `topic_counts` has the number of streams by topic.

        Waits for the first rebalance. Raises `RebalanceFailedError`, after which it may be called again, and
        `ConfigurationError` if the consumer has streams.
        """
        if not isinstance(topic_counts, Mapping):
            raise ConfigurationError(
                f"topic_counts maps topics to numbers of streams, such as {{'flights': 2}}, not {topic_counts!r}"
            )
        counts = ThreadCounts(topics=dict(topic_counts))
        return await self._create_streams(counts, topic_counts)

    async def create_message_streams_by_filter(
        self, topic_filter: TopicFilter, num_streams: int = 1
    ) -> list[KafkaStream]:
        """Join the group and return streams of all topics that match the filter, including topics created later.

        Waits for the first rebalance. Raises `RebalanceFailedError` if it fails, and `ConfigurationError` if the
        consumer has streams.
        """
        counts = ThreadCounts(filter=topic_filter, threads=num_streams)
        return (await self._create_streams(counts, {ANY_TOPIC: num_streams}))[ANY_TOPIC]

    @property
    def state(self) -> State:
        """Return the state of the group membership; DOWN without streams."""
        return State.DOWN if self._rebalancer is None else self._rebalancer.membership.state

    @property
    def rebalances(self) -> int:
        """Return the number of rebalances that this consumer has begun."""
        return 0 if self._rebalancer is None else self._rebalancer.membership.rebalances

    def owned(self) -> Ownership:
        """Return the partitions that the consumer has claimed, each with the thread id of its stream."""
        return {} if self._rebalancer is None else dict(self._rebalancer.membership.owned)

    def metrics(self) -> dict[str, float]:
        """Return the totals, maxima and lags of `Consumer.metrics`, of all streams, with this consumer's own figures.

        A stream counts anew when no broker that it knew is registered any more.
        """
        found: dict[str, float] = {"rebalance_total": self.rebalances, "assigned_partitions": len(self.owned())}
        if self._rebalancer is None:
            return found
        for name, value in (pair for stream in self._rebalancer.streams.values() for pair in stream.metrics().items()):
            if name.endswith("_total") and name not in {"rebalance_total", "commit_total"}:
                found[name] = found.get(name, 0) + value
            elif name.endswith(("_max", ".records_lag")):
                found[name] = max(found.get(name, 0.0), value)
        commits = self._rebalancer.commits
        return found | {
            "commit_total": commits.count,
            "commit_latency_avg": commits.mean,
            "commit_latency_max": commits.maximum,
        }

    async def commit_offsets(self) -> None:
        """Commit the offsets after the records that all streams have returned.

        Raises `SessionOverError` if the session is over, `KafkaError` or `StorageError` if the storage refuses, and
        `UnavailableError` without streams, or if the commit takes longer than `zookeeper.session.timeout.ms`.
        """
        if self._rebalancer is None:
            raise UnavailableError("the consumer has no streams yet: create them first")
        await self._rebalancer.commit_returned()

    async def close(self) -> None:
        """Commit (with `auto_commit_enable`), release the partitions, leave the group, and end the streams."""
        try:
            if self._rebalancer is not None:
                await self._rebalancer.close()
        finally:
            if self._store is not None:
                store, self._store = self._store, None
                await store.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # ---- joining ----------------------------------------------------------------------------------------------------

    async def _create_streams(self, counts: ThreadCounts, threads: Mapping[str, int]) -> dict[str, list[KafkaStream]]:
        store, settings = self._store, self._settings
        if store is None:
            raise UnavailableError("the consumer is not started: use `async with`, or await start()")
        if self._rebalancer is not None:
            raise ConfigurationError("a consumer creates its streams once")
        names = {
            topic: [thread_id(self.consumer_id, each) for each in range(number)] for topic, number in threads.items()
        }
        timeout_ms = None if settings.consumer_timeout_ms < 0 else settings.consumer_timeout_ms
        rebalancer = Rebalancer(
            self.consumer_id, settings, self._assignor, store, counts, self._listener, self._runtime
        )
        self._rebalancer = rebalancer
        for topic, threads_of_topic in names.items():
            for name in threads_of_topic:
                stream = KafkaStream(name, rebalancer.new_consumer, timeout_ms=timeout_ms)
                rebalancer.streams[topic, name] = stream
        try:
            await rebalancer.start()
        except BaseException:
            self._rebalancer = None
            raise
        return {topic: [rebalancer.streams[topic, name] for name in some] for topic, some in names.items()}
