"""`Consumer`, the public class: subscribe, poll, seek and commit."""

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from odradek.assignors import Assignor
from odradek.clients.arguments import (
    Partition,
    PartitionT,
    addresses_of,
    names_of,
    numbers_by_partition,
    partition_of,
    partitions_of,
)
from odradek.clients.cluster import Cluster
from odradek.clients.consumer.assignment_manager import AssignmentManager
from odradek.clients.consumer.commit_request_manager import CommitRequestManager
from odradek.clients.consumer.consumer_coordinator import ConsumerCoordinator
from odradek.clients.consumer.deserializers import Deserializer, Deserializers
from odradek.clients.consumer.fetching.fetch_collector import FetchCollector
from odradek.clients.consumer.fetching.fetcher import Fetcher
from odradek.clients.consumer.fetching.offset_fetcher import OffsetFetcher
from odradek.clients.consumer.interceptors import ConsumerInterceptor, Interceptors
from odradek.clients.consumer.membership.classic_requests import ClassicGroupRequests, create_assignors
from odradek.clients.consumer.membership.consumer_requests import ConsumerGroupRequests
from odradek.clients.consumer.membership.interface import ConsumerState, GroupRequests
from odradek.clients.consumer.metrics import ConsumerMetrics
from odradek.clients.consumer.settings import ConsumerSettings, consumer_settings
from odradek.clients.consumer.subscription import Callback, Subscription, SubscriptionType, create_subscription
from odradek.clients.consumer.subscription_state import ConsumerRecord, SubscriptionState
from odradek.clients.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata, offsets_by_partition
from odradek.clients.offsets import EARLIEST, LATEST, OffsetAndTimestamp, list_offsets
from odradek.clients.setting_types import ConsumerConfig
from odradek.model import ConfigurationError, TopicPartition, UnavailableError
from odradek.runtime import Runtime, system_runtime

if TYPE_CHECKING:
    import pyarrow

_log = logging.getLogger("odradek.clients")
T = TypeVar("T")
_ADDRESS = re.compile(r":\d+(,|$)")
_NOT_STARTED = "the consumer is not started: use it in an `async with` block (`with`, if it is a blocking one)"
_CLOSED = "the consumer was closed: create another one"
_NO_GROUP = "offsets are kept in a group: start the consumer with a group_id"
_DEFAULT_STRATEGIES = ("range", "cooperative-sticky")


class Consumer:
    """A consumer of records from a Kafka cluster, with or without a group.

        async with Consumer("flights", bootstrap_servers="localhost:9092", group_id="readers") as consumer:
            async for record in consumer:
                print(record.key, record.value)

    Settings are Kafka's, with `_` for `.` (`odradek.clients.consumer.settings`). Without a `group_id`, subscribing
    assigns every partition. Rebalance callbacks and automatic commits run in `poll` (and between records of
    `async for`): process all returned records before you poll again. Raises `ConfigurationError` for unknown settings
    and invalid values.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Iterable[str] = "localhost:9092",
        group_id: str | None = None,
        partition_assignment_strategy: str | Assignor | Iterable[str | Assignor] | None = None,
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        runtime: Runtime | None = None,
        **settings: Unpack[ConsumerConfig],
    ) -> None:
        for topic in topics:
            if isinstance(topic, str) and _ADDRESS.search(topic):
                raise ConfigurationError(
                    f"{topic!r} is an address, but the arguments are topics: Consumer('topic', "
                    f"bootstrap_servers={topic!r})"
                )
        given = {**settings, "bootstrap_servers": addresses_of(bootstrap_servers), "group_id": group_id}
        self._settings = consumer_settings(given)
        self._runtime = runtime or system_runtime()
        self._clock = self._runtime.clock
        self._cluster = Cluster(
            self._settings, self._runtime, allow_auto_topic_creation=self._settings.allow_auto_create_topics
        )
        self._changed = asyncio.Event()
        self._subscriptions = SubscriptionState()
        self._metrics = ConsumerMetrics()
        self._interceptors = Interceptors(interceptors)
        deserializers = Deserializers(key_deserializer, value_deserializer)
        self._collector = FetchCollector(self._subscriptions, deserializers or None, self._metrics)
        self._fetcher = Fetcher(self._cluster, self._settings, self._subscriptions, self._metrics, self._wake)
        self._group: ConsumerCoordinator | None = None
        self._commits: CommitRequestManager | None = None
        if (group := self._settings.group_id) is not None:
            requests = create_group_requests(
                self._cluster, self._settings, group, partition_assignment_strategy, self._wake
            )
            self._group = ConsumerCoordinator(self._cluster, self._settings, group, requests, self._wake)
            self._commits = CommitRequestManager(
                self._cluster, self._settings, self._subscriptions, self._group, self._on_commit
            )
        elif partition_assignment_strategy is not None:
            create_assignors(partition_assignment_strategy)  # a wrong name is an error without a group, too
        self._offset_fetcher = OffsetFetcher(
            self._cluster, self._settings, self._subscriptions, self._group, self._wake
        )
        self._assignment = AssignmentManager(
            self._cluster, self._settings, self._subscriptions, self._group, self._commits, self._metrics
        )
        self._cluster.on_metadata.append(self._on_metadata_update)
        self._cluster.on_authentication_error.append(self._wake)
        self._run: list[ConsumerRecord] = []
        """The records that `async for` returns next, in reverse order; empty with interceptors."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_started = self._is_closed = False
        if topics:
            self.subscribe(topics)

    async def start(self) -> Self:
        """Connect to the cluster; `async with` calls this. Raises `UnavailableError` if no broker answers in time.

        A consumer cannot start again after `close` or a failed start: create another.
        """
        if self._is_closed:
            raise UnavailableError(_CLOSED)
        if self._is_started:
            return self
        self._is_started = True
        self._loop = asyncio.get_running_loop()
        self._assignment.update_metadata_topics()
        try:
            await self._cluster.start()
        except BaseException:
            self._is_started, self._is_closed = False, True
            await self._cluster.close()
            raise
        self._assignment.apply_subscription()
        self._wake()
        return self

    async def close(self) -> None:
        """Commit positions (with `enable_auto_commit`), leave the group, and close all connections."""
        if not self._is_started:
            return
        self._check_loop()
        self._is_started, self._is_closed = False, True
        try:
            await self._leave("the consumer is closed")
        finally:
            self._fetcher.close()
            if self._group is not None:
                self._group.close()
            await self._cluster.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    # ---- subscription -------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | None = None,
        on_partitions_assigned: Callback | None = None,
        on_partitions_revoked: Callback | None = None,
        on_partitions_lost: Callback | None = None,
    ) -> None:
        """Replace the subscription by topics, or by `pattern`, a regular expression for whole topic names.

        Callbacks get a tuple of partitions and may be coroutine functions. `on_partitions_assigned` gets the new
        partitions, `on_partitions_revoked` those that can still be committed, and `on_partitions_lost` those that
        cannot; without this callback, `on_partitions_revoked` gets them. Raises `InvalidTopicError` for an invalid
        name, `ValueError` for topics and a pattern, for neither, or for an invalid pattern, and `ConfigurationError`
        after `assign`.
        """
        if self._assignment.subscription.type is SubscriptionType.USER_ASSIGNED:
            raise ConfigurationError("partitions are assigned by hand: unsubscribe before you subscribe")
        self._assignment.subscription = create_subscription(
            topics, pattern, on_partitions_assigned, on_partitions_revoked, on_partitions_lost
        )
        if self._is_started:
            self._assignment.apply_subscription()
            self._wake()

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Assign exactly these partitions, without group membership.

        Raises `ConfigurationError` after `subscribe`.
        """
        if self._assignment.subscription.type in {SubscriptionType.AUTO_TOPICS, SubscriptionType.AUTO_PATTERN}:
            raise ConfigurationError("topics are subscribed: unsubscribe before you assign partitions")
        self._assignment.subscription = Subscription(type=SubscriptionType.USER_ASSIGNED)
        self._subscriptions.assign(partitions_of(partitions))
        if self._is_started:
            self._assignment.update_metadata_topics()
            self._cluster.request_refresh()
            self._wake()

    async def unsubscribe(self) -> None:
        """Commit positions (with `enable_auto_commit`), revoke all partitions, and leave the group."""
        await self._leave("the consumer has unsubscribed")
        self._assignment.subscription = Subscription()
        self._assignment.update_metadata_topics()

    def assignment(self) -> frozenset[TopicPartition]:
        """Return the assigned partitions."""
        return self._subscriptions.partitions

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics, including those that the pattern matches."""
        return self._assignment.subscribed_topics()

    @property
    def state(self) -> ConsumerState | None:
        """Return the consumer's state in its group; None without a `group_id`."""
        return None if self._group is None else self._group.member.consumer_state

    async def partitions_for_topic(self, topic: str, *, timeout_ms: int | None = None) -> tuple[int, ...]:
        """Return the topic's partitions. Raises `KafkaError` if the topic does not exist within `timeout_ms`."""
        return (await self._cluster.topic(topic, timeout_ms=timeout_ms)).numbers

    # ---- records ------------------------------------------------------------------------------------------------

    async def poll(self, timeout_ms: int | None = None, max_records: int | None = None) -> list[ConsumerRecord]:
        """Wait for records, and return at most `max_records` (`max_poll_records` by default).

        Returns an empty list after `timeout_ms`; None waits without limit. Cancelling the call loses no record.
        Rebalance callbacks and automatic commits run in this call. Raises the callbacks' errors, and `KafkaError` for
        missing permission, a corrupt batch, an offset out of range with `auto_offset_reset` none, and others.
        """
        limit = self._settings.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise ValueError(f"max_records is 1 or more, not {limit}")
        records = await self._poll(lambda: self._collector.collect_records(limit), timeout_ms)
        return self._interceptors.on_consume(records) if self._interceptors else records

    async def poll_arrow(
        self, timeout_ms: int | None = None, *, columns: Iterable[str] | None = None, max_bytes: int = 8 << 20
    ) -> "pyarrow.RecordBatch | None":
        """Return about `max_bytes` of the next records as Arrow columns; None after `timeout_ms` without records.

        `columns` are names in `odradek.columns.COLUMNS`, all by default. The rows of a partition are together, in
        order. Deserializers and interceptors are not applied. Calls may alternate with `poll`. An error, such as a
        corrupt batch, moves no position. Needs the extra `arrow`.
        """
        from odradek.columns import DEFAULT_COLUMNS, RecordColumns

        wanted = DEFAULT_COLUMNS if columns is None else RecordColumns(names=tuple(names_of(columns)))
        raws = await self._poll(lambda: self._collector.collect_raw(max_bytes), timeout_ms)
        return self._collector.decode_columns(raws, wanted) if raws else None

    def __aiter__(self) -> Self:
        """Iterate over records without end; each step moves the position past the record that it returns."""
        return self

    async def __anext__(self) -> ConsumerRecord:
        try:
            return self._run.pop()
        except IndexError:
            pass
        return await self._next()

    async def _next(self) -> ConsumerRecord:
        while True:
            run = self._collector.run or await self._begin_run()
            if not self._interceptors:
                self._run = run
                return run.pop()
            if intercepted := self._interceptors.on_consume([run.pop()]):
                return intercepted[0]

    async def _begin_run(self) -> list[ConsumerRecord]:
        return await self._poll(lambda: self._collector.begin_run(self._settings.max_poll_records), None)

    async def _take_run(self) -> list[ConsumerRecord]:
        """Poll for records without moving the position, for blocking iteration; then `_returned` moves it.

        With interceptors, returns one record, after moving the position.
        """
        return [await self._next()] if self._interceptors else (await self._begin_run())[::-1]

    def _returned(self, count: int) -> None:
        """Move the position past the first `count` records of the last `_take_run`."""
        run = self._collector.run
        if not self._interceptors:
            del run[max(len(run) - count, 0) :]

    # ---- positions ----------------------------------------------------------------------------------------------

    def seek(self, partition: Partition, offset: int | OffsetAndMetadata) -> None:
        """Set the position; an offset with a leader epoch is validated against the leader's log first (KIP-320).

        Raises `KafkaError` for a partition that is not assigned, `ValueError` for a negative offset.
        """
        wanted = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        if wanted.offset < 0:
            raise ValueError(f"an offset is 0 or more, not {wanted.offset}: use seek_to_beginning or seek_to_end")
        self._subscriptions[partition_of(partition)].seek(wanted.offset, wanted.leader_epoch)
        self._wake()

    def seek_to_beginning(self, *partitions: Partition) -> None:
        """Reset `partitions`, or all assigned ones, to their first offset."""
        self._request_offset_reset(partitions, EARLIEST)

    def seek_to_end(self, *partitions: Partition) -> None:
        """Reset `partitions`, or all assigned ones, to their end offset."""
        self._request_offset_reset(partitions, LATEST)

    async def position(self, partition: Partition) -> int:
        """Return the offset of the next record that `poll` returns; if it is unknown, look it up.

        Raises `KafkaError` if the partition is not assigned; this or `UnavailableError` if the lookup fails.
        """
        state = self._subscriptions[partition_of(partition)]
        if not self._is_started:
            raise UnavailableError(_CLOSED if self._is_closed else _NOT_STARTED)
        while state.position is None:
            await self._offset_fetcher.update_fetch_positions([state])
            if state.error is not None:
                error, state.error = state.error, None
                raise error
        return state.position

    def is_at_end(self, partition: Partition) -> bool:
        """Return whether the position has reached the end offset in the last fetch response."""
        return self._subscriptions[partition_of(partition)].lag(is_committed_only=self._is_committed_only) == 0

    def pause(self, *partitions: Partition) -> None:
        """Stop fetching and returning records of these partitions until `resume`; they stay assigned."""
        for partition in partitions:
            self._subscriptions[partition_of(partition)].pause()

    def resume(self, *partitions: Partition) -> None:
        """Resume paused partitions."""
        for partition in partitions:
            self._subscriptions[partition_of(partition)].is_paused = False
        self._wake()

    def paused(self) -> frozenset[TopicPartition]:
        """Return the paused partitions."""
        return frozenset(state.partition for state in self._subscriptions if state.is_paused)

    async def beginning_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return {
            partition: found.offset for partition, found in (await self._list_offsets(partitions, EARLIEST)).items()
        }

    async def end_offsets(self, partitions: Iterable[Partition]) -> dict[TopicPartition, int]:
        """Return the end offset of each partition (with `read_committed`, the last stable offset)."""
        return {partition: found.offset for partition, found in (await self._list_offsets(partitions, LATEST)).items()}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[PartitionT, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return, by partition, the first offset at or after its timestamp; None if all records are earlier."""
        wanted = numbers_by_partition("a time in ms", timestamps_ms)
        found = await list_offsets(self._cluster, wanted)
        return {partition: each if each.offset >= 0 else None for partition, each in found.items()}

    # ---- committed offsets --------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[PartitionT, int | OffsetAndMetadata] | None = None) -> None:
        """Commit `offsets` (the next offset to read of each partition), by default all positions.

        Raises `KafkaError` ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID or REBALANCE_IN_PROGRESS if the group has rebalanced;
        then another member may read the same records again. Raises `ConfigurationError` without a group.
        """
        commits = self._commits
        if commits is None:
            raise ConfigurationError(_NO_GROUP)
        wanted = commits.all_consumed() if offsets is None else offsets_by_partition(offsets)
        await commits.commit(wanted, timeout_ms=self._cluster.timeout_ms)

    async def committed(self, *partitions: Partition) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets of `partitions`, None for a partition without one."""
        wanted = partitions_of(partitions)
        if self._group is None:
            raise ConfigurationError(_NO_GROUP)
        found = await self._group.committed(wanted, timeout_ms=self._cluster.timeout_ms)
        return {partition: found.get(partition) for partition in wanted}

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return this member of the group, for `Producer.send_offsets`; read it after the `poll` of the records."""
        if self._group is None:
            raise ConfigurationError(_NO_GROUP)
        return self._group.group_metadata()

    def metrics(self) -> dict[str, float]:
        """Return metrics by name, mostly Kafka's in snake_case. Averages and maxima are since the start, not of 30 s.

        A partition with a known lag has `TOPIC-PARTITION.records_lag`.
        """
        now = self._clock.monotonic()
        return self._metrics.snapshot(self._subscriptions, is_committed_only=self._is_committed_only, now=now)

    async def _poll(self, take: Callable[[], T], timeout_ms: int | None) -> T:
        changed, group = self._changed, self._group
        if not self._is_started:
            raise UnavailableError(_CLOSED if self._is_closed else _NOT_STARTED)
        self._check_loop()
        self._metrics.poll_started(self._clock.monotonic())
        deadline = inf if timeout_ms is None else self._clock.monotonic() + timeout_ms / 1000
        if group is not None:
            group.poll_started()
        try:
            while True:
                changed.clear()
                if (refusal := self._cluster.authentication_error) is not None:
                    self._cluster.authentication_error = None
                    raise refusal
                await self._assignment.run_callbacks()
                self._cluster.refresh_if_old()
                if self._commits is not None:
                    self._commits.auto_commit_async(self._clock.monotonic())
                self._offset_fetcher.update_fetch_positions_async()
                taken = take()
                self._fetcher.send_fetches()
                if taken:
                    return taken
                now = self._clock.monotonic()
                if now >= deadline:
                    # A loop of polls with timeout 0 must let the event loop run the fetches.
                    await asyncio.sleep(0)
                    return taken
                until = min(
                    deadline, self._cluster.next_refresh_at, self._commits.next_auto_commit_at if self._commits else inf
                )
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(until - now, 0.001)):  # wait_for of 3.11 loses cancellations
                        await changed.wait()
        finally:
            if group is not None:
                group.poll_finished()

    def _request_offset_reset(self, partitions: Iterable[Partition], timestamp: int) -> None:
        chosen = partitions_of(partitions) or self._subscriptions.partitions
        for partition in chosen:
            self._subscriptions[partition].request_offset_reset(timestamp)
        self._wake()

    async def _list_offsets(
        self, partitions: Iterable[Partition], timestamp: int
    ) -> dict[TopicPartition, OffsetAndTimestamp]:
        return await list_offsets(
            self._cluster,
            dict.fromkeys(partitions_of(partitions), timestamp),
            isolation_level=self._settings.isolation_level,
        )

    def _on_metadata_update(self) -> None:
        if self._is_started:
            self._assignment.update_assignment()
        self._wake()

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise UnavailableError("the consumer was started in another event loop: create a consumer in this one")

    async def _leave(self, reason: str) -> None:
        self._offset_fetcher.stop()
        await self._assignment.leave(reason)

    def _on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], latency_s: float) -> None:
        self._metrics.committed(latency_s)
        self._interceptors.on_commit(offsets)

    @property
    def _is_committed_only(self) -> bool:
        return self._settings.isolation_level == "read_committed"

    def _wake(self) -> None:
        self._changed.set()


def create_group_requests(
    cluster: Cluster,
    settings: ConsumerSettings,
    group_id: str,
    strategy: str | Assignor | Iterable[str | Assignor] | None,
    on_change: Callable[[], None],
) -> GroupRequests:
    """Create the `GroupRequests` for `group.protocol`.

    Raises `ConfigurationError` for an unknown assignor, and for any `strategy` with protocol `consumer`.
    """
    if settings.group_protocol == "classic":
        assignors = create_assignors(_DEFAULT_STRATEGIES if strategy is None else strategy)
        return ClassicGroupRequests(cluster, settings, group_id, assignors, on_change)
    if strategy is not None:
        raise ConfigurationError(
            "partition_assignment_strategy is for group_protocol classic; the coordinator assigns, by "
            "group_remote_assignor or its own choice"
        )
    return ConsumerGroupRequests(cluster, settings, group_id)
