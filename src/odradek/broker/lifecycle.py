"""The `Broker`: it creates all parts, and its list of them says in which order they start, stop and get a new image.

A broker runs on any event loop, including the simulator's: it uses only its `Runtime` and its `Store`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence, Set
from contextlib import suppress
from functools import partial
from inspect import isawaitable
from typing import Final, NamedTuple, TypeVar

from msgspec.structs import replace

from odradek.broker.cluster.counted_store import CountedStore
from odradek.broker.cluster.log_dir_events import LogDirEvents
from odradek.broker.cluster.metadata.broker_departures import log_departures
from odradek.broker.cluster.metadata.metadata_loop import MetadataLoop
from odradek.broker.cluster.producer_ids import ProducerIds
from odradek.broker.cluster.registration.broker_session import prepare_tree
from odradek.broker.cluster.registration.directories import (
    check_cluster,
    check_directories,
    check_place,
    resolve_duplicate_logs,
)
from odradek.broker.cluster.registration.fencing import Fence
from odradek.broker.cluster.registration.registration import Registration, in_live_session
from odradek.broker.cluster.registration.unclean_registration import wait_until_out_of_isrs
from odradek.broker.cluster.requests.broker_connections import BrokerConnections
from odradek.broker.cluster.requests.controlled_shutdown import ControlledShutdown
from odradek.broker.cluster.requests.controller_requests import ControllerRequests
from odradek.broker.controller.auto_topic_creation_manager import AutoTopicCreationManager
from odradek.broker.controller.controller import Controller
from odradek.broker.controller.machine.topic_creation import NewPartitions, TopicCreation
from odradek.broker.counters import BrokerCounters
from odradek.broker.groups.group_coordinator import group_coordinator
from odradek.broker.groups.rebalance_journal import RebalanceJournal
from odradek.broker.interfaces import Phase
from odradek.broker.log.cleaner.cleaner_workers import CleanerWorkers
from odradek.broker.log.directories.loading_progress import LoadingStoppedError
from odradek.broker.log.directories.log_manager import LogManager
from odradek.broker.log.write_scheduler import WriteScheduler
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.replication.alter_log_dirs import ReplicaAlterLogDirsManager
from odradek.broker.replication.alter_partition_manager import AlterPartitionManager
from odradek.broker.replication.reading.replica_selector import PreferredReadReplicas, create_replica_selector
from odradek.broker.replication.replica_fetcher import FetcherContext, ReplicaFetcherManager
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.replication.stray_logs import StrayLogs
from odradek.broker.security.admission import Admission
from odradek.broker.security.authorization import create_authorizer, warn_of_old_names, warn_of_old_quotas
from odradek.broker.security.listener_security import inter_broker_security
from odradek.broker.security.quotas.client_quotas import ClientQuotas
from odradek.broker.security.quotas.replication_quotas import replication_quotas
from odradek.broker.security.request_proofs import RequestProofs
from odradek.broker.security.scram_users import ScramUsers
from odradek.broker.serving.dispatch import Dispatcher
from odradek.broker.serving.fetch_sessions import FetchSessions
from odradek.broker.serving.purgatory import Purgatory
from odradek.broker.serving.response_cache import ResponseCache
from odradek.broker.serving.responses import with_throttle_time
from odradek.broker.serving.server import Server
from odradek.broker.transactions.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from odradek.broker.transactions.partition_verification import PartitionVerification
from odradek.broker.transactions.transaction_coordinator import TransactionCoordinator
from odradek.config.broker import BrokerConfig
from odradek.config.dynamic import broker_config_in_force
from odradek.config.listener_settings import inter_broker_listener
from odradek.config.listeners import ListenerAddress
from odradek.kernels import MISSING
from odradek.metadata.image import ClusterImage, MetadataDelta
from odradek.metadata.new_topic import NewTopic
from odradek.metadata.store import Store
from odradek.model import KafkaError, StorageError, TopicPartition, UnavailableError
from odradek.model.names import ADMIN_CLIENT_ID
from odradek.runtime import Runtime
from odradek.security import ALLOW_ALL
from odradek.wire.client_authentication import ClientSecurity

T = TypeVar("T")
_log = logging.getLogger("odradek.broker")
_TREE_RETRY_S: Final = 1.0
_WARNING_INTERVAL_S: Final = 60.0
_FEWEST_OPEN_FILES: Final = 16
"""Lower limit of open log files. Logs get half of the process's file descriptors, connections the other half."""


def _nothing(*_: object) -> None: ...


class _Part(NamedTuple):
    """The steps of a part when the broker starts, stops, is killed (None: `stop` again), and gets a new image."""

    start: Callable[[], Awaitable[object] | None] = _nothing
    stop: Callable[[], Awaitable[object] | None] = _nothing
    kill: Callable[[], object] | None = None
    on_image: Callable[[MetadataDelta], object] = _nothing


class Broker:
    """One broker. The caller closes `store`, after the broker has stopped.

    `note` is in the error of a second broker on the same data directory. `most_connections` limits connections in
    addition to `max.connections`. Without `admission`, all is allowed. The constructor needs a running event loop.
    """

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        store: Store,
        *,
        note: str = "another broker",
        most_connections: int = 2**31 - 1,
        admission: Admission | None = None,
    ) -> None:
        self.metadata, self.phase = MetadataCache(config), Phase.STARTING
        self.runtime, self.store, self.tree = runtime, store, CountedStore(store)
        self._has_checked_directories, self.failed = False, asyncio.Event()
        """Set when the last data directory has failed: the caller has to stop the broker."""
        self.counters, self.response_cache, self.purgatory = BrokerCounters(), ResponseCache(), Purgatory()
        self.fetch_sessions = FetchSessions(
            slots=config.max_incremental_fetch_session_cache_slots,
            most_partitions=config.most_session_partitions,
            entropy=runtime.entropy,
        )
        self.authorizer, self.verification = create_authorizer(config), self._make_verification()
        self.quotas = ClientQuotas(config, runtime.clock, with_throttle_time)
        self.replication_quotas = replication_quotas(runtime.clock, lambda: self.config)
        self.admission = admission or Admission(self.authorizer or ALLOW_ALL, verifier=self.verification)
        self.proofs = RequestProofs(lambda: self.image, inter_broker_listener(config))
        self.dispatcher = Dispatcher(
            self,
            self.metadata,
            self.counters,
            self.admission,
            self.quotas,
            runtime.worker,
            self.proofs,
            is_own_command=lambda body: self.metadata_loop.command_handler.is_addressed_here(body),
        )
        self.server = Server(
            runtime,
            self.metadata,
            self.dispatcher,
            self.admission,
            self.quotas,
            most_connections=most_connections,
            scram_users=ScramUsers(lambda: self.image),
        )
        self.fence = Fence(store, runtime.clock)
        security = replace(inter_broker_security(config, runtime), prove=self.proofs.make)
        self.broker_connections = BrokerConnections(runtime, f"broker-{config.broker_id}", security)
        self.controller_requests: ControllerRequests[Controller] = ControllerRequests(
            self.metadata, self.broker_connections, local_controller=lambda: self.metadata_loop.elected_controller
        )
        self._make_replicas(note)
        self._make_membership(security)
        self._make_coordinators(security)
        self._parts = self._list_parts()

    def _make_verification(self) -> PartitionVerification:
        return PartitionVerification(
            self.metadata,
            self.runtime.clock,
            partitions=lambda: self.partitions,
            manager=lambda: self.add_partitions_to_txn_manager,
        )

    def _make_membership(self, security: ClientSecurity) -> None:
        """Create the metadata loop and the controlled shutdown."""
        config, runtime = self.config, self.runtime
        self.metadata_loop: MetadataLoop[Controller] = MetadataLoop(
            self.tree,
            config.broker_id,
            self._registered_endpoints,
            config,
            runtime,
            fence=self.fence,
            security=security,
            on_image=self._on_image,
            replicas=self.partitions,
            new_controller=partial(
                Controller, replicas=self.partitions, runtime=runtime, counters=self.counters, security=security
            ),
        )
        self.controlled_shutdown = ControlledShutdown(
            self.metadata,
            self.controller_requests,
            lambda: self.metadata_loop.broker_epoch,
            has_session=self.metadata_loop.has_session,
        )

    def _make_coordinators(self, security: ClientSecurity) -> None:
        """Create the coordinators of groups and transactions, the journal, and the creation of their topics."""
        runtime = self.runtime
        self.auto_topic_creation_manager = AutoTopicCreationManager(
            self.metadata, self.controller_requests, wait_until_applied=self.partitions.wait_until_applied
        )
        create_topic = self.auto_topic_creation_manager.ensure
        self.journal_connections = BrokerConnections(runtime, ADMIN_CLIENT_ID, security)
        self.rebalance_journal = RebalanceJournal(
            self.metadata, runtime.clock, self.partitions, self.journal_connections, create_topic=create_topic
        )
        self.groups = group_coordinator(
            self.metadata,
            runtime.clock,
            self.partitions,
            self.rebalance_journal,
            runtime.worker,
            create_topic=create_topic,
        )
        self.producer_ids = ProducerIds(self.metadata_loop.allocate_producer_ids)
        self.transactions = TransactionCoordinator(
            self.metadata,
            runtime.clock,
            self.partitions,
            self.broker_connections,
            self.producer_ids,
            create_topic=create_topic,
            marker_appended=self.groups.marker_appended,
        )
        self.add_partitions_to_txn_manager = AddPartitionsToTxnManager(
            self.metadata, self.broker_connections, self.transactions.submit
        )

    def _make_replicas(self, note: str) -> None:
        """Create the log manager, the replica manager and the parts that they need."""
        config, runtime, metadata = self.config, self.runtime, self.metadata
        selector = config.replica_selector_class
        self.preferred_read_replicas = (
            PreferredReadReplicas(create_replica_selector(selector), lambda: self.image) if selector else None
        )
        self.log_dir_events = LogDirEvents(self.tree, config.broker_id)
        self.logs = LogManager(
            runtime.disk,
            config.log_dirs,
            broker_id=config.broker_id,
            entropy=runtime.entropy,
            config_for=lambda topic: self.partitions.log_config(topic),
            max_open_files=max(runtime.disk.open_files_limit() // 2, _FEWEST_OPEN_FILES),
            note=note,
            when_log_stopped=self.log_dir_events.notify,
            when_directory_failed=self._notice_failed_directory,
            when_segment_suspected=lambda key, log, segment: self.partitions.damaged.suspect(key, log, segment),
        )
        self.alter_partition_manager = AlterPartitionManager(
            metadata, runtime.clock, self.controller_requests, check_fence=self.fence.check
        )
        self.fetchers = ReplicaFetcherManager(
            FetcherContext(
                metadata, runtime.clock, self.broker_connections, self.counters, self.replication_quotas.follower
            )
        )
        self.stray_logs = StrayLogs(self.tree, config.broker_id, self.logs, runtime.clock, image=lambda: self.image)
        self.partitions = ReplicaManager(
            config,
            runtime,
            self.logs,
            alter_partition_manager=self.alter_partition_manager,
            fetchers=self.fetchers,
            stray_logs=self.stray_logs,
            when_logs_change=self.log_dir_events.notify,
            write_scheduler=WriteScheduler(
                runtime.disk,
                runtime.clock,
                cork=self.server.cork,
                check_fence=self.fence.check,
                when_full=self.log_dir_events.notify,
            ),
        )
        self.alter_log_dirs = ReplicaAlterLogDirsManager(
            self.logs,
            runtime,
            self.replication_quotas.alter_log_dirs,
            self.partitions.write_scheduler,
            appender=self.partitions.appender,
        )
        self.fence.on_change(closed=self.partitions.fence, opened=self.partitions.unfence)
        self.fence.on_change(closed=self.stray_logs.stop, opened=self.stray_logs.look)
        self.cleaning = CleanerWorkers(
            self.logs.cleaner,
            runtime,
            config=lambda: self.config,
            stable_offset=self.partitions.stable_offset,
        )

    @property
    def broker_id(self) -> int:
        return self.config.broker_id

    @property
    def broker_epoch(self) -> int:
        """The epoch of the broker's registration in the image; -1 if the image has none."""
        return self.metadata.broker_epoch

    @property
    def config(self) -> BrokerConfig:
        return self.metadata.config

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    @property
    def endpoint(self) -> ListenerAddress:
        """The advertised address of the first listener; known once the ports are open."""
        return self.endpoints[0]

    @property
    def endpoints(self) -> tuple[ListenerAddress, ...]:
        """The advertised addresses of all listeners; known once the ports are open."""
        return self.server.endpoints

    def _registered_endpoints(self) -> Sequence[ListenerAddress]:
        """Return the endpoints for the registration: first that of the listener for brokers."""
        first = inter_broker_listener(self.config)
        return sorted(self.endpoints, key=lambda each: each.name != first)

    @property
    def controller(self) -> Controller:
        return self.metadata_loop.controller()

    # ---- start and stop -----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the broker, and return when it serves clients.

        If it raises (`StorageError`, `ConfigurationError`, `UnavailableError`), nothing is left running. After a
        cancellation during log recovery, the next start skips the recovered logs. Nothing is created in the data
        directories and in the tree before it is known whose they are.
        """
        try:
            for part in self._parts:
                await _done(part.start())
        except BaseException:
            self.kill()
            raise
        self.phase = Phase.RUNNING
        _log.info("broker %d serves at %s", self.broker_id, ", ".join(map(str, self.endpoints)))

    async def stop(self) -> None:
        """Shut down cleanly: move leaderships, answer waiting requests, leave the cluster, and close the logs."""
        self.phase = Phase.LEAVING
        await self.controlled_shutdown.move_leaders()
        self.phase = Phase.STOPPING
        for part in reversed(self._parts):
            await _done(part.stop())
        _log.info("broker %d has stopped", self.broker_id)

    def kill(self) -> None:
        """Stop as after `kill -9`: nothing is written, flushed or sent; peers get a connection reset."""
        self.phase = Phase.STOPPING
        for part in reversed(self._parts):
            kill = part.kill or part.stop
            kill()

    def _on_image(self, delta: MetadataDelta) -> None:
        for part in self._parts:
            part.on_image(delta)

    def _list_parts(self) -> tuple[_Part, ...]:
        """Return the parts, which start and get an image in this order, and stop in the reverse one.

        The ports are open before the directories and the tree are read, so that clients wait; a broker that is killed
        resets its connections before its parts fail what they wait for. The image and the configuration are in
        `metadata` before another part gets them. Partitions exist before coordinators, and the journal and the
        verification end after the coordinators that use them. Appends end before the connections which their replies
        use, and the session with the tree ends when nothing writes any more: a new leader may be elected then.
        """
        server, logs, cleaning, loop = self.server, self.logs, self.cleaning, self.metadata_loop
        partitions, isr, topics = self.partitions, self.alter_partition_manager, self.auto_topic_creation_manager
        transactions, groups = self.transactions, self.groups
        return (
            _Part(start=self._open_ports),
            _Part(self._open_logs, self._close_logs, logs.kill),
            _Part(on_image=self._update_metadata),
            _Part(self._join_cluster, loop.stop, loop.kill),
            _Part(stop=self.journal_connections.close),
            _Part(stop=self.broker_connections.close),
            _Part(stop=topics.kill, on_image=topics.image_changed),
            _Part(on_image=self.controlled_shutdown.image_changed),
            _Part(on_image=self.controller_requests.image_changed),
            _Part(stop=server.close_connections, kill=server.abort_connections),
            _Part(stop=self.dispatcher.stop, kill=self.dispatcher.kill),
            _Part(partitions.wait_until_applied, partitions.stop, partitions.kill, partitions.apply),
            _Part(start=partitions.start_maintenance),
            _Part(start=partial(isr.start, partitions), stop=isr.stop),
            _Part(stop=self.stray_logs.stop),
            _Part(stop=self.log_dir_events.stop),
            _Part(stop=self.fetchers.stop),
            _Part(cleaning.start, cleaning.stop, cleaning.kill),
            _Part(self.alter_log_dirs.start, self.alter_log_dirs.stop, self.alter_log_dirs.kill),
            _Part(stop=self.rebalance_journal.stop),
            _Part(stop=self.add_partitions_to_txn_manager.stop),
            _Part(transactions.runtime.start, transactions.stop, transactions.kill, transactions.runtime.image_changed),
            _Part(groups.start, groups.stop, groups.kill, groups.image_changed),
            _Part(stop=self.purgatory.expire_all, kill=self.purgatory.kill),
            _Part(server.accept_client_requests, server.close_listeners, server.kill),
            _Part(stop=self.fence.stop),
        )

    async def _open_ports(self) -> None:
        self.logs.directories.check()
        if MISSING:
            _log.warning("Python checks and compacts records, which is slower: %s", MISSING)
        await self.server.open()

    async def _open_logs(self) -> None:
        directories = self.logs.directories
        await self._until_tree_answers(self._check_identity)
        directories.lock()
        self.server.remember_ports()
        directories.cluster_id = await self._until_tree_answers(lambda: prepare_tree(self.store, self.runtime.entropy))
        await self._load_logs()

    def _close_logs(self) -> None:
        self.logs.close(threads=self.config.num_recovery_threads_per_data_dir)

    async def _join_cluster(self) -> None:
        await self.metadata_loop.start(
            prepare=self._prepare_registration, when_read=self.server.accept_controller_requests
        )

    async def _until_tree_answers(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `work`, repeated without limit unless `zookeeper.connection.timeout.ms` is set."""
        clock, next_warning_s = self.runtime.clock, 0.0
        while True:
            try:
                return await in_live_session(work)
            except UnavailableError as error:
                if self.config.zookeeper_connection_timeout_ms is not None:
                    raise
                if clock.monotonic() >= next_warning_s:
                    next_warning_s = clock.monotonic() + _WARNING_INTERVAL_S
                    _log.warning("%s; broker %d waits for it", error, self.broker_id)
            await asyncio.sleep(_TREE_RETRY_S)

    async def _check_identity(self) -> None:
        """Raise an error if the directories are of another cluster, or the broker's id or data are elsewhere."""
        await check_cluster(self.store, self.logs.directories)
        endpoints = self._registered_endpoints
        await Registration(self.store, self.broker_id, endpoints, self.config, self.runtime.clock).check_id()
        await check_place(self.store, self.broker_id, self.logs.directories)

    async def _load_logs(self) -> None:
        # In the background: recovery may take minutes, in which the session is kept alive and probes are answered.
        clock = self.runtime.clock
        threads = self.config.num_recovery_threads_per_data_dir
        load = partial(self.logs.load, clock.now_ms(), threads=threads, monotonic=clock.monotonic)
        loading = self.runtime.disk.submit(load, background=True)
        try:
            await asyncio.shield(loading)
        except asyncio.CancelledError:
            self.logs.stop_loading()
            with suppress(LoadingStoppedError):
                await loading
            self.logs.close(threads=threads)
            raise
        await resolve_duplicate_logs(self.store, self.runtime, self.logs)

    async def _prepare_registration(self, timeout_s: float) -> None:
        """Check the directories. After an unclean shutdown, wait until this broker is in no ISR with a live broker."""
        if not self._has_checked_directories:
            await check_directories(self.store, self.broker_id, self.logs, timeout_s=timeout_s)
            self.logs.write_meta_properties()
            self._has_checked_directories = True
        if not self.logs.were_closed:
            await in_live_session(lambda: wait_until_out_of_isrs(self.store, self.broker_id, timeout_s=timeout_s))

    def _notice_failed_directory(self, partitions: Set[TopicPartition], reason: StorageError) -> None:
        """Handle a failed directory in the event loop's next turn: the caller is still in an operation on a log."""
        asyncio.get_running_loop().call_soon(self._directory_failed, frozenset(partitions), reason)

    def _directory_failed(self, partitions: Set[TopicPartition], reason: StorageError) -> None:
        """Take a failed directory offline unless the broker stops; set `failed` if it was the last (KIP-112)."""
        if self.phase is not Phase.STOPPING:
            self.partitions.logs_failed(partitions, reason)
            self.log_dir_events.notify()
            if not self.logs.directories.usable:
                self.failed.set()

    def _update_metadata(self, delta: MetadataDelta) -> None:
        """Use the new image, and what it says of ACLs, configurations and quotas."""
        old, new = delta.old, delta.new
        self.metadata.image = new
        if self.authorizer is not None and new.acls is not old.acls:
            self.authorizer.update(new.acls)
            if old.acls is None and new.acls is not None:
                warn_of_old_names(self.authorizer, new.acls)
        log_departures(delta, self.broker_id)
        if new.broker_configs != old.broker_configs:
            self._update_config(new)
        if new.quota_configs != old.quota_configs:
            self.quotas.update(new.quota_configs)
            if not old.quota_configs:
                warn_of_old_quotas(new.quota_configs)

    def _update_config(self, image: ClusterImage) -> None:
        """Apply the dynamic configuration of the image on top of the static one."""
        for_all, own = (image.broker_configs.get(each, {}) for each in (None, self.broker_id))
        self.metadata.config, ignored = broker_config_in_force(self.config.layers[-1], for_all, own)
        for sentence in ignored:
            _log.error("Ignoring a part of the configuration that is set for broker %d: %s", self.broker_id, sentence)
        self.partitions.update_config(self.config)
        self.metadata_loop.update_config(self.config)

    # ---- topics -------------------------------------------------------------------------------------------------

    async def create_topics(self, wanted: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicCreation]:
        """Create topics, each completely or not at all, and return the results in the order of `wanted`.

        When this returns, the topics accept records. Raises `KafkaError` if this broker is not the controller, or the
        tree cannot be reached.
        """
        created = await self.controller.create_topics(wanted, validate_only=validate_only) if wanted else []
        await self.partitions.wait_until_applied()
        return created

    async def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Add partitions to topics, all or none per topic; return each one's error or None, in the order of `wanted`.

        When this returns, the partitions accept records. Raises `KafkaError` if this broker is not the controller, or
        the tree cannot be reached.
        """
        results = await self.controller.create_partitions(wanted, validate_only=validate_only) if wanted else []
        await self.partitions.wait_until_applied()
        return results


async def _done(result: Awaitable[object] | None) -> None:
    if isawaitable(result):
        await result
