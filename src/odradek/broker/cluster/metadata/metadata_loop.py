"""The metadata loop: the task in which a broker reads the tree, publishes images and stands for controller election.

The task repeats these steps: read what changed in the tree, publish the new image, run the controller's tasks if this
broker is elected, then run the waiting jobs.

The image says which partitions a broker leads and follows. The controller reads it from the tree; the other brokers
compute it from the controller's commands, and watch little of the tree.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final, Generic, TypeVar

from odradek.broker.cluster.config_changes import ConfigChange, write_changes
from odradek.broker.cluster.feature_changes import FeatureChange, write_features
from odradek.broker.cluster.metadata.cluster_view import ClusterView, OnImage
from odradek.broker.cluster.metadata.controller_command_handler import ControllerCommandHandler, LocalReplicas
from odradek.broker.cluster.metadata.controller_election import (
    ControllerMovedError,
    ElectedController,
    Election,
    register_controller,
)
from odradek.broker.cluster.registration.broker_session import BrokerSession, prepare_tree, read_cluster_secret
from odradek.broker.cluster.registration.dead_brokers import DeadBrokerDetector
from odradek.broker.cluster.registration.fencing import Fence
from odradek.broker.cluster.registration.registration import Endpoints, Prepare, prepare_nothing, unregister
from odradek.broker.security.acl_changes import AclChanges, LogChange, write_acls
from odradek.config.broker import BrokerConfig
from odradek.metadata import paths
from odradek.metadata.image import NO_CONTROLLER, BrokerImage, ClusterImage
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.nodes import ProducerIdBlockNode, next_producer_id_block
from odradek.metadata.reading import BrokenNodes, read_registrations
from odradek.metadata.store import BadVersion, NoNode, SessionExpired, Store
from odradek.model import ErrorCode, KafkaError, OdradekError, UnavailableError
from odradek.runtime import Runtime
from odradek.security import AclEntry, ResourcePattern
from odradek.wire.client_authentication import NO_SECURITY, ClientSecurity

T = TypeVar("T")
ControllerT = TypeVar("ControllerT", bound=ElectedController)
_FIRST_RETRY_S: Final = 0.05
_LONGEST_RETRY_S: Final = 5.0
_FIRST_WARNING_S: Final = 10.0
"""Time for which a starting broker waits for the controller before it logs a warning."""
_LONGEST_WARNING_INTERVAL_S: Final = 300.0
_log = logging.getLogger("odradek.broker")


class MetadataLoop(Generic[ControllerT]):
    """One broker's metadata loop. `on_image` is called on the event loop after every change.

    The loop opens `fence` when it has the full image in a live session. `new_controller` creates the controller when
    this broker is elected; the loop closes it when the broker resigns. The image has no topics that are being deleted.
    """

    def __init__(
        self,
        store: Store,
        broker_id: int,
        endpoints: Endpoints,
        config: BrokerConfig,
        runtime: Runtime,
        *,
        fence: Fence | None = None,
        security: ClientSecurity = NO_SECURITY,
        on_image: OnImage,
        replicas: LocalReplicas,
        new_controller: Callable[[Election], ControllerT],
    ) -> None:
        self.broker_id = broker_id
        self._store = store
        self._runtime = runtime
        self._new_controller = new_controller
        self._controller: ControllerT | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        wake = self._wake.set
        self._fence = fence or Fence(store, runtime.clock)
        self._broker_session = BrokerSession(
            store, broker_id, endpoints, config, runtime.clock, fence=self._fence, wake=wake
        )
        self._dead_brokers = DeadBrokerDetector(store, runtime, f"broker-{broker_id}", security)
        self._jobs = _JobQueue(wake=wake)
        self.view = ClusterView(store, broker_id, config, on_image=on_image, wake=wake)
        self.command_handler = ControllerCommandHandler(self.view, self._broker_session, replicas, wake=wake)
        self._joined = asyncio.Event()

    @property
    def image(self) -> ClusterImage:
        return self.view.image

    @property
    def is_controller(self) -> bool:
        """Whether this broker was elected controller and has not resigned."""
        return self._controller is not None

    @property
    def broker_epoch(self) -> int:
        return self._broker_session.epoch

    @property
    def elected_controller(self) -> ControllerT | None:
        return self._controller

    def controller(self) -> ControllerT:
        if self._controller is None:
            raise KafkaError(ErrorCode.not_controller, "this broker is not the controller")
        return self._controller

    async def start(
        self, *, prepare: Prepare = prepare_nothing, when_read: Callable[[], object] = lambda: None
    ) -> None:
        """Join the cluster: register, then become the controller or wait for the controller's full state.

        `prepare` runs before the registration (see `registration`). `when_read` is called when the image has what the
        broker reads from the tree, such as users and ACLs, and before it waits for the controller. Raises
        `ConfigurationError` if another broker has this id, the errors of `prepare`, and the store's errors.
        """
        cluster_id = await prepare_tree(self._store, self._runtime.entropy)
        secret = await read_cluster_secret(self._store)
        self.view.image = ClusterImage(cluster_id=cluster_id, secret=secret)
        self.view.start()
        await self._broker_session.join(prepare=prepare)
        self._fence.on_change(closed=self._on_fence_closed)
        await self._settle()
        when_read()
        self._fence.start(wake=self.view.mark_all_changed)
        self._task = asyncio.create_task(self._run(), name=f"metadata loop of broker {self.broker_id}")
        await self._wait_for_commands()

    async def _wait_for_commands(self) -> None:
        warning_s = _FIRST_WARNING_S
        while not self._joined.is_set():
            try:
                async with asyncio.timeout(warning_s):
                    await self._joined.wait()
            except TimeoutError:
                warning_s = min(warning_s * 2, _LONGEST_WARNING_INTERVAL_S)
                known = self.image.controller_id
                whom = "a controller" if known == NO_CONTROLLER else f"the controller, broker {known}"
                _log.warning(
                    "broker %d serves no clients until it has the full state of the cluster from %s",
                    self.broker_id,
                    whom,
                )

    async def has_session(self) -> bool:
        """Return whether the tree answers in this broker's session, after two seconds at most."""
        return await self._broker_session.is_reachable()

    async def stop(self) -> None:
        """Leave the cluster, so that another controller can be elected at once. The store stays open."""
        self.kill()
        if self._task is not None:
            await asyncio.wait([self._task])
        self._jobs.fail_all(KafkaError(ErrorCode.not_controller))
        await self._broker_session.leave()

    def kill(self) -> None:
        """Stop as if the process were killed: nothing is written to the tree."""
        self._fence.stop()
        self.view.stop()
        self._broker_session.stop()
        self._dead_brokers.watch(())
        if self._task is not None:
            self._task.cancel()
        self._close_controller()

    # ---- requests -----------------------------------------------------------------------------------------------

    async def run_in_turn(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work` in the loop's task, then update the image, and return the result of `work`.

        Raises `KafkaError`: NOT_CONTROLLER if the loop does not run, else the error of `work`.
        """

        async def job() -> T:
            result = await work()
            await self._settle()
            return result

        if self._task is None or self._task.done():
            raise KafkaError(ErrorCode.not_controller)
        return await self._jobs.submit(job)

    async def change_configs(self, changes: Sequence[ConfigChange]) -> list[KafkaError | None]:
        """Change configurations, on any broker, and return each change's error or None.

        When this returns, the image has the changes. Raises `KafkaError` if the tree cannot be reached.
        """

        async def change() -> list[KafkaError | None]:
            results = await write_changes(self._store, changes)
            topics = [each.topic for each in changes if each.topic is not None]
            self.view.mark_configs(topics)
            return results

        return await self.run_in_turn(change)

    async def change_features(self, change: FeatureChange) -> None:
        """Change the finalized features, on any broker. When this returns, the image has the new ones.

        Raises `KafkaError` of `change`, and if the tree cannot be reached.
        """

        async def write() -> None:
            await write_features(self._store, change)
            self.view.mark_configs(())

        await self.run_in_turn(write)

    async def change_acls(
        self, changes: AclChanges, log_change: LogChange
    ) -> Mapping[ResourcePattern, frozenset[AclEntry]]:
        """Change ACLs, on any broker, and return those of each pattern that were added or removed.

        When this returns, the image has the changes. Raises `KafkaError` if the tree cannot be reached, and those of
        `changes`; then some changes may have been made.
        """
        try:
            changed = await write_acls(self._store, changes, log_change)
        except OdradekError as error:
            raise _as_kafka_error(error) from error

        async def read() -> None:
            self.view.mark_configs(())

        await self.run_in_turn(read)
        return changed

    async def topic_config(self, topic: str) -> Mapping[str, str]:
        """Return a topic's configuration, read from the tree if this broker does not watch it.

        Raises `KafkaError` if the tree cannot be reached.
        """
        try:
            return await self.view.topic_config(topic)
        except OdradekError as error:
            raise _as_kafka_error(error) from error

    async def registered_brokers(self) -> Mapping[int, BrokerImage]:
        """Return all registered brokers by id, live or away. Raises `KafkaError` if the tree cannot be reached."""
        try:
            return {**await read_registrations(self._store, BrokenNodes()), **self.image.brokers}
        except OdradekError as error:
            raise _as_kafka_error(error) from error

    async def unregister_broker(self, broker_id: int) -> None:
        """Remove the registration of a broker that is away.

        Raises `KafkaError` if the broker is alive or not registered, or the tree cannot be reached.
        """
        try:
            await unregister(self._store, broker_id)
        except OdradekError as error:
            raise _as_kafka_error(error) from error

    def update_config(self, config: BrokerConfig) -> None:
        """Replace the broker's configuration; `on_image` calls it."""
        self.view.config = config

    async def allocate_producer_ids(self) -> range:
        """Return a block of unused producer ids. Raises `KafkaError` if none are left, and the store's errors."""
        path = paths.LATEST_PRODUCER_ID_BLOCK
        while True:
            node = await self._store.get(path)
            if node is None:
                raise NoNode(path)
            latest = ProducerIdBlockNode.decode(path, node.data) if node.data else None
            block = next_producer_id_block(latest, self.broker_id)
            try:
                await self._store.set(path, block.encode(), node.version)
            except BadVersion:
                continue
            return range(block.first, block.last + 1)

    # ---- the task -----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        """Run the loop until `stop`. After an error, try again with growing delays."""
        delay_s = _FIRST_RETRY_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._settle()
                await self._jobs.run_all(deposed=self._resign)
                delay_s = _FIRST_RETRY_S
                continue
            except OdradekError as error:
                _log.warning("%s; trying again in %.2f s", error, delay_s)
                self._jobs.fail_all(_as_kafka_error(error))
            except Exception:
                _log.exception("the metadata loop failed; trying again in %.2f s", delay_s)
            await self._fence.back_off(delay_s)
            delay_s = min(delay_s * 2, _LONGEST_RETRY_S)
            self.view.mark_all_changed()

    async def _settle(self) -> None:
        """Update the image and run the controller's tasks, until none of them changes the tree."""
        while True:
            try:
                await self._update()
                if self._controller is None or not self._fence.check() or not await self._controller.run_tasks():
                    return
            except (ControllerMovedError, SessionExpired) as error:
                _log.warning("broker %d: %s", self.broker_id, error)
                self._resign()

    async def _update(self) -> None:
        """Renew the registration, stand for election if that is due, and publish the image."""
        view = self.view
        if await self._broker_session.renew():
            self._resign()
            view.mark_all_changed()
        session = self._broker_session.session
        is_alive = self._fence.is_alive(session)
        if not is_alive:
            self._fence.notify_again()
        elif view.is_election_due:
            view.is_election_due = False
            await self._elect()
        delta = await view.refresh()
        if self._controller is not None:
            self._controller.image_changed(delta)
        self._dead_brokers.watch(
            broker
            for broker_id, broker in view.image.brokers.items()
            if broker_id != self.broker_id and (self.is_controller or broker_id == view.image.controller_id)
        )
        if self._controller is not None or self.command_handler.is_initialized:
            self._fence.open_for(session, was_alive=is_alive)
            self._joined.set()

    async def _elect(self) -> None:
        """Become the controller if there is none, or again if this session's controller was closed."""
        node = await self._store.get(paths.CONTROLLER)
        if node is not None and node.owner == self._store.session_id:
            if self._controller is not None:
                return
            # The controller of this session was closed after an error: begin another epoch.
            with suppress(NoNode, BadVersion):
                await self._store.delete(paths.CONTROLLER, node.version)
        claimed = None
        with suppress(BrokenNodeError):  # no election until the epoch can be read; `tree_watchers` logs it
            claimed = await register_controller(self._store, self.broker_id, self._runtime.clock.now_ms())
        self._close_controller()
        # A broker that is elected again reads the whole tree: another controller may have written partition states,
        # which are not watched.
        self.view.watch_tree(enabled=False)
        if claimed is not None:
            epoch, version = claimed
            _log.info("broker %d is the controller of epoch %d", self.broker_id, epoch)
            self.view.watch_tree(enabled=True)
            self._controller = self._new_controller(
                Election(
                    epoch=epoch,
                    epoch_version=version,
                    view=self.view,
                    fence=self._fence,
                    run_in_turn=self.run_in_turn,
                )
            )
        self.view.request_controller_read()

    def _on_fence_closed(self) -> None:
        """Resign: when the fence has closed, another broker may be the controller, and the image may be old."""
        self._resign()
        self.view.mark_all_changed()

    def _resign(self) -> None:
        self._close_controller()
        self.view.on_controller_changed()

    def _close_controller(self) -> None:
        if self._controller is not None:
            self._controller.close()
            self._controller = None


class _JobQueue:
    """A queue of jobs, limited by the number of requests in progress, which submit one job each."""

    def __init__(self, *, wake: Callable[[], None]) -> None:
        self._jobs: deque[tuple[Callable[[], Awaitable[None]], Callable[[KafkaError], None]]] = deque()
        self._wake = wake

    async def submit(self, work: Callable[[], Awaitable[T]]) -> T:
        """Queue `work`, and return its result. Every failure is raised as `KafkaError`."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def fail(error: KafkaError) -> None:
            if not answer.done():
                answer.set_exception(error)

        async def job() -> None:
            result = await work()
            if not answer.done():
                answer.set_result(result)

        self._jobs.append((job, fail))
        self._wake()
        return await answer

    async def run_all(self, *, deposed: Callable[[], None]) -> None:
        """Run all jobs. The caller of a job gets its error; an error that is not a `KafkaError` is also raised here.

        `deposed` is called when a job finds that another broker is the controller.
        """
        while self._jobs:
            job, fail = self._jobs.popleft()
            try:
                await job()
            except OdradekError as error:
                fail(_as_kafka_error(error))
                if isinstance(error, ControllerMovedError):
                    deposed()
                if not isinstance(error, KafkaError):
                    raise
            except asyncio.CancelledError:
                fail(KafkaError(ErrorCode.not_controller))
                raise
            except BaseException:
                fail(KafkaError(ErrorCode.unknown_server_error))
                raise

    def fail_all(self, error: KafkaError) -> None:
        while self._jobs:
            _, fail = self._jobs.popleft()
            fail(error)


def _as_kafka_error(error: OdradekError) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, ControllerMovedError | SessionExpired):
        return KafkaError(ErrorCode.not_controller, str(error))
    if isinstance(error, UnavailableError):
        return KafkaError(ErrorCode.request_timed_out, str(error))
    return KafkaError(ErrorCode.unknown_server_error, str(error))
