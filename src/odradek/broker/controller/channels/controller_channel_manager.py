"""Kafka's `ControllerChannelManager`: sends the changes of every image to all other live brokers.

A broker that registers gets the full state, and so do all brokers from a new controller. A slow or unreachable broker
gets the latest state, as long as it is registered.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from odradek.broker.cluster.metadata.cluster_view import ClusterView
from odradek.broker.cluster.metadata.controller_commands import LocalReplicas
from odradek.broker.controller.channels.pending_updates import Change, Stop, compute_changes
from odradek.broker.controller.channels.request_sender import RequestSender
from odradek.broker.controller.channels.requests import ControllerIdentity
from odradek.broker.controller.machine import StopReplicas
from odradek.broker.turns import cooperatively
from odradek.metadata.image import BrokerImage, ClusterImage, MetadataDelta
from odradek.model import ErrorCode, TopicPartition
from odradek.runtime import Runtime
from odradek.wire.client_authentication import ClientSecurity


class ControllerChannelManager:
    """The channels of one controller epoch. `update_replicas` receives the errors of brokers' replicas."""

    def __init__(
        self,
        view: ClusterView,
        replicas: LocalReplicas,
        runtime: Runtime,
        security: ClientSecurity,
        *,
        epoch: int,
        update_replicas: Callable[[BrokerImage, Mapping[TopicPartition, ErrorCode]], None],
    ) -> None:
        self.identity = ControllerIdentity(broker_id=view.broker_id, epoch=epoch)
        self._view = view
        self._replicas = replicas
        self._runtime = runtime
        self._security = security
        self._update_replicas = update_replicas
        self._senders: dict[int, RequestSender] = {}
        self._check_task: asyncio.Task[None] | None = None
        self._unchecked_topics: set[str] = set()
        """Topics whose logs on this broker have to be checked."""
        self._stopped: dict[tuple[int, int], dict[TopicPartition, Stop]] = {}
        """Replicas that brokers have stopped, by `(broker id, broker epoch)`."""

    @property
    def image(self) -> ClusterImage:
        return self._view.image

    def image_changed(self, delta: MetadataDelta) -> None:
        """Send the differences to all brokers. Called with every image of the controller epoch."""
        new, change = delta.new, compute_changes(delta)
        for broker_id in [each for each in self._senders if not self._is_current(each, new)]:
            self._senders.pop(broker_id).close()
        for sender in self._senders.values():
            if change:
                self._send(sender, change)
        for broker_id, broker in new.brokers.items():
            if broker_id != self.identity.broker_id and broker_id not in self._senders:
                self._senders[broker_id] = RequestSender(self, broker, self._runtime, self._security)
        self._check_local_logs_later(change.partitions)

    async def request_log_states(self, broker_id: int) -> None:
        """Request the state of a registered broker's logs by UpdateMetadata; check this broker's own logs directly."""
        replicas: dict[str, frozenset[int]] = {}
        async for topic in cooperatively(tuple(self.image.topics.values())):
            own = frozenset(number for number, each in topic.partitions.items() if broker_id in each.replicas)
            if own:
                replicas[topic.name] = own
        if broker_id == self.identity.broker_id:
            self._check_local_logs_later(replicas)
        elif (sender := self._senders.get(broker_id)) is not None:
            self._send(sender, Change(brokers=False, partitions=replicas, deleted={}))

    def _send(self, sender: RequestSender, change: Change) -> None:
        """Send a change, and forget which of its partitions the broker has stopped, which the broker starts again."""
        sender.pending.add(change)
        sender.wake()
        answers = self._stopped_by(sender.broker)
        for key in [key for key in answers if key.partition in change.partitions.get(key.topic, ())]:
            del answers[key]

    def _check_local_logs_later(self, topics: Iterable[str]) -> None:
        self._unchecked_topics.update(topics)
        if self._unchecked_topics and self._check_task is None:
            name = "checking the controller's own logs"
            self._check_task = asyncio.get_running_loop().create_task(self._check_local_logs(), name=name)

    async def _check_local_logs(self) -> None:
        """Record offline logs of the controller's own broker, which gets no requests."""
        while self._unchecked_topics:
            await self._replicas.wait_until_applied()
            names, self._unchecked_topics = self._unchecked_topics, set()
            me = self.identity.broker_id
            async for name in cooperatively(names):
                topic, broker = self.image.topics.get(name), self.image.brokers.get(me)
                if topic is None or broker is None:
                    continue
                own = {TopicPartition(name, number) for number, each in topic.partitions.items() if me in each.replicas}
                self._update_replicas(broker, {key: self._replicas.replica_error(key) for key in own})
        self._check_task = None

    def _is_current(self, broker_id: int, image: ClusterImage) -> bool:
        """Return whether the broker's registration in `image` is the one that its sender was created for."""
        return image.brokers.get(broker_id) == self._senders[broker_id].broker

    async def all_acknowledged(self) -> None:
        """Wait, without a time-out, until all brokers have acknowledged all pending changes."""
        for sender in tuple(self._senders.values()):
            await sender.acknowledged.wait()

    def close(self) -> None:
        for sender in self._senders.values():
            sender.close()
        self._senders.clear()
        if self._check_task is not None:
            self._check_task.cancel()

    # ---- stopping replicas --------------------------------------------------------------------------------------

    async def delete_own(self, stops: Iterable[StopReplicas]) -> None:
        """Delete the replicas of this broker in turns, unless their topic is created again."""
        async for each in cooperatively(stops):
            if each.partition.topic in self.image.topics:
                return
            if self.identity.broker_id in each.brokers:
                self._replicas.stop_replica(each.partition, delete=True)
        await self._replicas.sync_deleted()

    def ensure_stopped(self, stops: Iterable[StopReplicas]) -> bool:
        """Return whether all live brokers have deleted these replicas, and request it of those that have not.

        The tasks run again when such a broker has answered or died. If this returns True, the replicas on this broker
        are deleted too, and the responses forgotten: remove the replicas from the tree at once.
        """
        wanted = [(broker_id, each) for each in stops for broker_id in each.brokers]
        missing = [(broker_id, each) for broker_id, each in wanted if not self._has_stopped(broker_id, each)]
        for broker_id, each in missing:
            self._senders[broker_id].stop(each.partition, Stop(leader_epoch=each.leader_epoch, delete=True))
        if missing:
            return False
        for broker_id, each in wanted:
            if broker_id == self.identity.broker_id:
                self._replicas.stop_replica(each.partition, delete=True)
            elif broker_id in self._senders:
                self._stopped_by(self._senders[broker_id].broker).pop(each.partition, None)
        return True

    def unregistered(self, brokers: Iterable[int]) -> list[int]:
        """Return those of `brokers` that are not registered, and so get no requests."""
        return sorted(each for each in brokers if each != self.identity.broker_id and each not in self._senders)

    def stop_following(self, broker_id: int, partitions: Iterable[TopicPartition]) -> None:
        """Request that a broker that shuts down stops following `partitions`, without deleting them."""
        sender = self._senders.get(broker_id)
        if sender is not None:
            for key in partitions:
                partition = self.image.partition(key)
                epoch = -1 if partition is None else partition.leader_epoch
                sender.stop(key, Stop(leader_epoch=epoch, delete=False))

    def _has_stopped(self, broker_id: int, wanted: StopReplicas) -> bool:
        sender = self._senders.get(broker_id)
        if sender is None:
            return True
        done = self._stopped_by(sender.broker).get(wanted.partition)
        return done is not None and done.delete and done.leader_epoch == wanted.leader_epoch

    def _stopped_by(self, broker: BrokerImage) -> dict[TopicPartition, Stop]:
        return self._stopped.setdefault((broker.broker_id, broker.epoch), {})

    # ---- responses of brokers ------------------------------------------------------------------------------------

    def on_refused(self, error: ErrorCode) -> None:
        """Handle an error response: after STALE_CONTROLLER_EPOCH, check whether there is a newer controller."""
        if error is ErrorCode.stale_controller_epoch:
            self._view.on_controller_changed()

    def on_response(
        self,
        broker: BrokerImage,
        replicas: Iterable[TopicPartition],
        stops: Mapping[TopicPartition, Stop],
        partition_errors: Iterable[Any],
    ) -> None:
        """Handle a response to an UpdateMetadata with these replicas of the broker, and these to stop.

        A replica that the broker keeps for a newer leader epoch counts as stopped too.
        """
        errors = dict.fromkeys(replicas, ErrorCode.none)
        errors |= {TopicPartition(each.topic_name, each.partition_index): each.error_code for each in partition_errors}
        self._update_replicas(broker, errors)
        sender = self._senders.get(broker.broker_id)
        updated_again = {} if sender is None else sender.pending.partitions
        self._stopped_by(broker).update(
            {key: each for key, each in stops.items() if key.partition not in updated_again.get(key.topic, ())}
        )
        if stops:
            self._view.wake()
