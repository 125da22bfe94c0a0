"""A broker's part in the cluster: its registration, its picture of it, and the controller's work if it is elected.

One task does it all, one thing after the other: read what changed in the tree, publish the new image, do what the
controller has to do about it, then what was asked for. Since a controller decides from the tree alone, the next one
finishes whatever this one leaves half done, and its first look at the tree is its only full one.

On one broker the image is all a broker needs: it tells which partitions it leads and which are gone. With several, the
controller's commands will tell the others; until then every broker that is not the controller watches all states.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final, TypeVar
from uuid import UUID

from odradek.broker.active_controller import ActiveController, DeposedError, claim_controller, new_id
from odradek.broker.config_changes import ConfigChange, write_changes
from odradek.broker.registration import Registration, in_live_session
from odradek.config import BrokerConfig, ListenerAddress
from odradek.controller import (
    ClusterLoad,
    NewPartitions,
    NewTopic,
    RequestRoom,
    TakenNames,
    TopicCreation,
    TopicDeletion,
    TopicPlan,
    needs_initialization,
    next_producer_id_block,
    plan_partitions,
    plan_topic,
)
from odradek.metadata import paths
from odradek.metadata.follower import TreeFollower
from odradek.metadata.image import ClusterImage
from odradek.metadata.nodes import ClusterIdNode, ProducerIdBlockNode, encode_topic_id
from odradek.metadata.store import BadVersion, NodeExists, NoNode, SessionExpired, Store, StoreError
from odradek.model import ErrorCode, KafkaError, OdradekError, StorageError, UnavailableError
from odradek.runtime import Entropy, Runtime

T = TypeVar("T")
OnImage = Callable[[ClusterImage, ClusterImage], None]
_FIRST_RETRY_S: Final = 0.05
_LONGEST_RETRY_S: Final = 5.0
_log = logging.getLogger("odradek.broker")


async def prepare_tree(store: Store, entropy: Entropy, *, cluster_id: str | None = None) -> str:
    """Make the tree's fixed nodes if it is new, and return the cluster's id, which is made once for ever.

    `cluster_id` is what a new one shall be, if not one made by chance.
    """
    return await in_live_session(lambda: _prepare_tree(store, entropy, cluster_id))


async def _prepare_tree(store: Store, entropy: Entropy, cluster_id: str | None) -> str:
    found = await store.get_many(paths.PERSISTENT_ROOTS)
    for path, node in zip(paths.PERSISTENT_ROOTS, found, strict=True):
        if node is None:
            with suppress(NodeExists):
                await store.create(path)
    while (node := await store.get(paths.CLUSTER_ID)) is None:
        with suppress(NodeExists):
            created = ClusterIdNode(cluster_id=cluster_id or encode_topic_id(new_id(entropy)))
            await store.create(paths.CLUSTER_ID, created.encode())
    return ClusterIdNode.decode(paths.CLUSTER_ID, node.data).cluster_id


class ControllerShell:
    """One broker in the cluster. `on_image(old, new)` is called on the event loop after every change.

    A topic that is to be deleted is not in the new image; when `on_image` returns, this broker's replicas of it are
    taken for deleted, and its nodes are removed. A topic with another id under the same name is another topic.
    """

    def __init__(
        self,
        store: Store,
        broker_id: int,
        endpoints: Sequence[ListenerAddress],
        config: BrokerConfig,
        runtime: Runtime,
        *,
        on_image: OnImage,
    ) -> None:
        self.broker_id = broker_id
        self._store = store
        self._registration = Registration(store, broker_id, tuple(endpoints), config.broker_rack, runtime.clock)
        self._config = config
        self._runtime = runtime
        self._on_image = on_image
        self._image = ClusterImage()
        self._active: ActiveController | None = None
        self._load = ClusterLoad()
        self._unchecked: set[str] = set()
        """Topics that changed, or whose brokers did, since the controller last did its duties."""
        self._session_lost = False
        self._jobs: deque[tuple[Callable[[], Awaitable[None]], Callable[[KafkaError], None]]] = deque()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._follower = TreeFollower(store, wake=self._wake.set, deletes=config.delete_topic_enable)

    @property
    def image(self) -> ClusterImage:
        """The cluster as this broker knows it."""
        return self._image

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller, as far as it knows."""
        return self._active is not None

    async def start(self) -> None:
        """Join the cluster: register, be elected if nobody is, and publish the first image.

        Raises `ConfigurationError` if another broker has this id, and the store's errors.
        """
        cluster_id = await prepare_tree(self._store, self._runtime.entropy)
        self._image = ClusterImage(cluster_id=cluster_id)
        self._store.on_session_lost(self._notice_lost_session)
        self._follower.start()
        await self._registration.register_first(self._config.zookeeper_session_timeout_ms)
        await self._settle()
        self._task = asyncio.create_task(self._run(), name=f"controller shell of broker {self.broker_id}")

    async def stop(self) -> None:
        """Leave the cluster: others may be elected at once. The store stays open."""
        await self._end()
        try:
            for path in (paths.CONTROLLER, paths.broker(self.broker_id)):
                node = await self._store.get(path)
                if node is not None and node.owner == self._store.session_id:
                    await self._store.delete(path, node.version)
        except (StoreError, UnavailableError, StorageError) as error:
            _log.warning("left the cluster without saying so: %s", error)
        self._active = None

    def kill(self) -> None:
        """Do nothing more, as a process that was killed; the tree learns nothing."""
        self._follower.stop()
        if self._task is not None:
            self._task.cancel()

    async def create_topics(self, wanted: Sequence[NewTopic], *, validate_only: bool = False) -> list[TopicCreation]:
        """Create topics, each or not at all; when this returns they are in `image`, and `on_image` was called.

        Raises `KafkaError` if this broker is not the controller, or the tree cannot be reached.
        """
        return await self._do(lambda controller: self._create(controller, wanted, validate_only=validate_only))

    async def delete_topics(self, wanted: Sequence[str | UUID]) -> list[TopicDeletion]:
        """Delete topics by name or id; when this returns nothing of them is in `image`, nor in the tree.

        Raises `KafkaError` if this broker is not the controller, or the tree cannot be reached.
        """
        return await self._do(lambda controller: self._delete(controller, wanted))

    async def create_partitions(
        self, wanted: Sequence[NewPartitions], *, validate_only: bool = False
    ) -> list[KafkaError | None]:
        """Give topics more partitions, each all or none; when this returns they are in `image`, with leaders.

        Raises `KafkaError` if this broker is not the controller, or the tree cannot be reached.
        """
        return await self._do(lambda controller: self._expand(controller, wanted, validate_only=validate_only))

    async def change_configs(self, changes: Sequence[ConfigChange]) -> list[KafkaError | None]:
        """Change configurations, each or not at all; when this returns they are in `image`. Any broker does it.

        Raises `KafkaError` if the tree cannot be reached.
        """
        return await self._enqueue(lambda: self._change(changes))

    def update_config(self, config: BrokerConfig) -> None:
        """Let another configuration of this broker hold from now on; `on_image` calls it."""
        self._config = config
        if self._active is not None:
            self._active.config = config
            self._unchecked.update(self._image.topics)

    async def allocate_producer_ids(self) -> range:
        """A block of producer ids that nobody has had and nobody will have. Raises the store's errors."""
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

    async def _do(self, work: Callable[[ActiveController], Awaitable[T]]) -> T:
        """Have the task do `work` in its turn, as the controller."""

        async def work_as_controller() -> T:
            if self._active is None:
                raise DeposedError("this broker is not the controller")
            return await work(self._active)

        return await self._enqueue(work_as_controller)

    async def _enqueue(self, work: Callable[[], Awaitable[T]]) -> T:
        """Have the task do `work` in its turn."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def fail(error: KafkaError) -> None:
            if not answer.done():
                answer.set_exception(error)

        async def job() -> None:
            result = await work()
            if not answer.done():
                answer.set_result(result)

        if self._task is None or self._task.done():
            raise KafkaError(ErrorCode.not_controller)
        self._jobs.append((job, fail))
        self._wake.set()
        return await answer

    async def _run(self) -> None:
        """The task. What fails is tried again, slower each time: nothing here may end but by `stop`."""
        delay_s = _FIRST_RETRY_S
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._settle()
                await self._do_jobs()
                delay_s = _FIRST_RETRY_S
                continue
            except OdradekError as error:
                _log.warning("%s; trying again in %.2f s", error, delay_s)
                self._fail_jobs(_as_kafka_error(error))
            except Exception:
                _log.exception("the controller shell failed; trying again in %.2f s", delay_s)
            await asyncio.sleep(delay_s)
            delay_s = min(delay_s * 2, _LONGEST_RETRY_S)
            self._follower.mark_all()

    async def _do_jobs(self) -> None:
        while self._jobs:
            job, fail = self._jobs.popleft()
            try:
                await job()
            except OdradekError as error:
                fail(_as_kafka_error(error))
                if isinstance(error, DeposedError):
                    self._step_down()
                if not isinstance(error, KafkaError):
                    raise
            except asyncio.CancelledError:
                fail(KafkaError(ErrorCode.not_controller))
                raise
            except BaseException:
                fail(KafkaError(ErrorCode.unknown_server_error))
                raise

    async def _settle(self) -> None:
        """Bring the image up to date and do the controller's duties, until there is nothing left to do."""
        while True:
            try:
                await self._look()
                if self._active is None or not await self._do_duties(self._active):
                    return
            except (DeposedError, SessionExpired) as error:
                _log.warning("broker %d: %s", self.broker_id, error)
                self._step_down()

    async def _look(self) -> None:
        """Take part in the cluster as a live session does, and publish what it looks like."""
        if self._session_lost:
            self._session_lost = False
            self._step_down()
            self._follower.mark_all()
            await self._registration.register()
        if self._follower.controller_changed:
            await self._elect()
        image = await self._follower.refresh(self._image)
        if self.broker_id not in image.brokers:
            await self._registration.register()
            self._follower.mark(brokers=True)
            image = await self._follower.refresh(image)
        self._publish(image)

    async def _elect(self) -> None:
        """Find out whether this broker is the controller, and become it if nobody is."""
        node = await self._store.get(paths.CONTROLLER)
        if node is not None and node.owner == self._store.session_id:
            if self._active is not None:
                return
            # A term of this very session that was given up after an error: begin another one.
            with suppress(NoNode, BadVersion):
                await self._store.delete(paths.CONTROLLER, node.version)
        claimed = await claim_controller(self._store, self.broker_id, self._runtime.clock.now_ms())
        if claimed is None:
            self._active = None
        else:
            epoch, version = claimed
            _log.info("broker %d is the controller of epoch %d", self.broker_id, epoch)
            self._unchecked.update(self._image.topics)
            self._active = ActiveController(
                self._store, self._config, self._runtime.entropy, epoch=epoch, epoch_version=version
            )
        self._follower.watch_states(enabled=self._active is None)
        self._follower.mark(controller=True)

    def _step_down(self) -> None:
        self._active = None
        self._follower.mark(controller=True)

    def _publish(self, image: ClusterImage) -> None:
        old = self._image
        if image is old:
            return
        for name in image.changed_topics(old):
            self._unchecked.add(name)
            before, after = old.topics.get(name), image.topics.get(name)
            if before is not None:
                self._load.remove(partition.replicas for partition in before.partitions.values())
            if after is not None:
                self._load.add(partition.replicas for partition in after.partitions.values())
        if image.brokers != old.brokers:
            self._unchecked.update(image.topics)
        self._image = image
        self._on_image(old, image)

    async def _do_duties(self, controller: ActiveController) -> bool:
        """Do what the image asks of the controller. True if the tree was changed, so that there may be more."""
        follower, image = self._follower, self._image
        if follower.listed_deletions is not None:
            names, version = follower.listed_deletions
            await controller.request_deletions(names, listed_version=version)
            follower.mark(names=True)
            return True
        if follower.deletion_wishes:
            follower.mark(names=True)
            if not self._config.delete_topic_enable:
                await controller.refuse_deletions(follower.deletion_wishes)
                return True
            for name in sorted(follower.deletion_wishes):
                await controller.delete_topic(name)
            return True
        topics = [image.topics[name] for name in sorted(self._unchecked) if name in image.topics]
        changed = [topic.name for topic in topics if needs_initialization(topic)]
        for name in changed:
            await controller.initialize(image.topics[name], image)
        changed += await controller.elect_leaders(image, topics)
        self._unchecked.clear()
        if changed:
            follower.mark(topics=changed)
        return bool(changed)

    async def _create(
        self, controller: ActiveController, wanted: Sequence[NewTopic], *, validate_only: bool
    ) -> list[TopicCreation]:
        load = self._load.copy()
        taken = TakenNames((*self._image.topics, *self._image.deleting))
        room = RequestRoom()
        results = []
        for topic in wanted:
            plan: TopicPlan | None = None
            try:
                plan = plan_topic(
                    topic,
                    topic_id=new_id(self._runtime.entropy),
                    existing=taken,
                    brokers=self._image.brokers,
                    load=load,
                    config=self._config,
                )
                room.take(len(plan.replicas))
                if not validate_only:
                    await controller.create_topic(plan)
                    self._follower.mark(topics=(topic.name,), names=True)
            except KafkaError as error:
                results.append(TopicCreation(name=topic.name, error=error))
            else:
                taken.add(topic.name)
                results.append(TopicCreation(name=topic.name, plan=plan))
        await self._settle()
        return results

    async def _expand(
        self, controller: ActiveController, wanted: Sequence[NewPartitions], *, validate_only: bool
    ) -> list[KafkaError | None]:
        load = self._load.copy()
        room = RequestRoom()
        results: list[KafkaError | None] = []
        for each in wanted:
            topic = self._image.topics.get(each.topic)
            try:
                added = plan_partitions(each, topic, brokers=self._image.brokers, load=load)
                room.take(len(added))
                if not validate_only:
                    await controller.add_partitions(each.topic, added)
                results.append(None)
            except KafkaError as error:
                results.append(error)
        self._follower.mark(topics=[each.topic for each, error in zip(wanted, results, strict=True) if error is None])
        await self._settle()
        return results

    async def _change(self, changes: Sequence[ConfigChange]) -> list[KafkaError | None]:
        results = await write_changes(self._store, changes)
        self._follower.mark(broker_configs=True, topics=[each.topic for each in changes if each.topic is not None])
        await self._settle()
        return results

    async def _delete(self, controller: ActiveController, wanted: Sequence[str | UUID]) -> list[TopicDeletion]:
        results = [self._find(name_or_id) for name_or_id in wanted]
        await controller.request_deletions(sorted({each.name for each in results if each.name and not each.error}))
        self._follower.mark(names=True)
        await self._settle()
        return results

    def _find(self, name_or_id: str | UUID) -> TopicDeletion:
        """The topic that is meant, or the error that says why it can't be deleted."""
        name = name_or_id if isinstance(name_or_id, str) else None
        if isinstance(name_or_id, str):
            topic = self._image.topics.get(name_or_id)
        else:
            topic = self._image.topic_by_id(name_or_id)
        error: KafkaError | None = None
        if not self._config.delete_topic_enable:
            error = KafkaError(ErrorCode.topic_deletion_disabled, "delete.topic.enable is false")
        elif topic is None and name is not None:
            error = KafkaError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name}")
        elif topic is None:
            error = KafkaError(ErrorCode.unknown_topic_id, f"there is no topic with the id {name_or_id}")
        if topic is None:
            return TopicDeletion(name=name, topic_id=None, error=error)
        return TopicDeletion(name=topic.name, topic_id=topic.topic_id, error=error)

    def _notice_lost_session(self) -> None:
        self._session_lost = True
        self._wake.set()

    async def _end(self) -> None:
        """Stop the task."""
        self.kill()
        if self._task is not None:
            await asyncio.wait([self._task])
        self._fail_jobs(KafkaError(ErrorCode.not_controller))

    def _fail_jobs(self, error: KafkaError) -> None:
        """Answer whoever waits: clients try again, maybe with another broker."""
        while self._jobs:
            _, fail = self._jobs.popleft()
            fail(error)


def _as_kafka_error(error: OdradekError) -> KafkaError:
    """What a client is told when the tree did not do its part."""
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, DeposedError | SessionExpired):
        return KafkaError(ErrorCode.not_controller, str(error))
    if isinstance(error, UnavailableError):
        return KafkaError(ErrorCode.request_timed_out, str(error))
    return KafkaError(ErrorCode.unknown_server_error, str(error))
