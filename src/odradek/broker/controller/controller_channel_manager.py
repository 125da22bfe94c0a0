"""Kafka's `ControllerChannelManager`: sends the changes of every image to all other live brokers.

A broker that registers gets the full state, and so do all brokers from a new controller. A slow or unreachable broker
gets the latest state, as long as it is registered.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from odradek.broker.cluster.metadata.cluster_view import ClusterView
from odradek.broker.cluster.metadata.controller_command_handler import LocalReplicas
from odradek.broker.cluster.requests.broker_connections import BrokerConnections
from odradek.broker.controller.machine.reassignment import StopReplicas
from odradek.broker.controller.update_metadata import (
    ControllerIdentity,
    PendingUpdates,
    Stop,
    compute_changes,
    replicas_in,
    update_metadata,
)
from odradek.broker.retrying_sender import RetryingSender
from odradek.broker.turns import cooperatively
from odradek.metadata.image import BrokerImage, ClusterImage, MetadataDelta
from odradek.model import AuthenticationError, ErrorCode, KafkaError, TopicPartition, UnavailableError
from odradek.protocol.api import CONTROLLER_VERSIONS, ApiKey
from odradek.protocol.messages.message_codec import encode_request
from odradek.runtime import Runtime
from odradek.runtime.rate_limited_log import RateLimitedLog
from odradek.wire.client_authentication import ClientSecurity

_FIRST_BACKOFF_S: Final = 0.02
_log = logging.getLogger("odradek.broker")


class _BrokerState:
    """The updates that one registration of a broker has not received; they are repeated until it answers."""

    def __init__(self, manager: "ControllerChannelManager", broker: BrokerImage) -> None:
        self.broker = broker
        self._manager = manager
        self._stops_in_flight: Mapping[TopicPartition, Stop] = {}
        self._retry_log = RateLimitedLog(_log)
        name = f"UpdateMetadata to broker {broker.broker_id}"
        pending = PendingUpdates(everything=True)
        self.sender = RetryingSender(name, pending, self._send, first_backoff_s=_FIRST_BACKOFF_S)
        self.sender.wake()

    def stop(self, topic_partition: TopicPartition, stop: Stop) -> None:
        """Stop a replica, unless the same request is in flight."""
        if self._stops_in_flight.get(topic_partition) != stop:
            self.sender.waiting.stops[topic_partition] = stop
            self.sender.wake()

    async def _send(self, pending: PendingUpdates) -> bool:
        batch = pending.take()
        self._stops_in_flight = batch.stops
        is_sent = False
        try:
            await self._exchange(batch)
            is_sent = True
        except (AuthenticationError, KafkaError, UnavailableError) as error:
            if self.sender.has_longest_backoff:
                text = "Failed to send UpdateMetadata to broker %d, retrying each second: %s"
                self._retry_log.log("unreachable", logging.WARNING, text, self.broker.broker_id, error)
        finally:
            self._stops_in_flight = {}
            if not is_sent:
                pending.restore(batch)
        return is_sent

    async def _exchange(self, batch: PendingUpdates) -> None:
        """Send all updates in their present state. Raises `KafkaError` if refused, `UnavailableError` if unanswered."""
        manager, broker, api_key = self._manager, self.broker, ApiKey.UPDATE_METADATA
        version = CONTROLLER_VERSIONS[api_key]
        message = update_metadata(manager.identity, broker, manager.image, batch)
        connection = await manager.connections.connection({broker.broker_id: broker}, broker.broker_id)
        # Building and encoding 10,000 partitions takes 20 ms each; other tasks run in between.
        await asyncio.sleep(0)
        body = encode_request(api_key, version, message)
        await asyncio.sleep(0)
        answer = connection.decode(api_key, await connection.exchange(api_key, version, (body,)))
        if answer.error_code is not ErrorCode.none:
            manager.on_refused(answer.error_code)
            raise KafkaError(answer.error_code, f"it refused the request with {answer.error_code.name.upper()}")
        manager.on_response(broker, replicas_in(message, broker.broker_id), batch.stops, answer.partition_errors)


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
        self.connections = BrokerConnections(runtime, f"controller-{view.broker_id}", security, negotiate=False)
        """Not those of others: a broker handles the requests of a connection one after the other."""
        self._update_replicas = update_replicas
        self._brokers: dict[int, _BrokerState] = {}
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
        for broker_id in [each for each in self._brokers if not self._is_current(each, new)]:
            self._brokers.pop(broker_id).sender.close()
            self.connections.close_purpose(broker_id, "")
        for state in self._brokers.values():
            if change:
                self._send(state, change)
        for broker_id, broker in new.brokers.items():
            if broker_id != self.identity.broker_id and broker_id not in self._brokers:
                self._brokers[broker_id] = _BrokerState(self, broker)
        self._check_local_logs_later(change.partitions)

    async def request_log_states(self, broker_id: int) -> None:
        """Request the state of a registered broker's logs by UpdateMetadata; check this broker's own logs directly."""
        replicas: dict[str, set[int]] = {}
        async for topic in cooperatively(tuple(self.image.topics.values())):
            own = {number for number, each in topic.partitions.items() if broker_id in each.replicas}
            if own:
                replicas[topic.name] = own
        if broker_id == self.identity.broker_id:
            self._check_local_logs_later(replicas)
        elif (state := self._brokers.get(broker_id)) is not None:
            self._send(state, PendingUpdates(partitions=replicas))

    def _send(self, state: _BrokerState, change: PendingUpdates) -> None:
        """Send a change, and forget which of its partitions the broker has stopped, which the broker starts again."""
        state.sender.waiting.add(change)
        state.sender.wake()
        answers = self._stopped_by(state.broker)
        for key in [key for key in answers if key.partition in change.partitions.get(key.topic, ())]:
            del answers[key]

    def _check_local_logs_later(self, topics: Iterable[str]) -> None:
        self._unchecked_topics.update(topics)
        if self._unchecked_topics and self._check_task is None:
            name = "checking the controller's own logs"
            self._check_task = asyncio.get_running_loop().create_task(self._check_local_logs(), name=name)

    async def _check_local_logs(self) -> None:
        """Record offline logs of the controller's own broker, which gets no requests."""
        try:
            while self._unchecked_topics:
                await self._replicas.wait_until_applied()
                names, self._unchecked_topics = self._unchecked_topics, set()
                me = self.identity.broker_id
                async for name in cooperatively(names):
                    topic, broker = self.image.topics.get(name), self.image.brokers.get(me)
                    if topic is None or broker is None:
                        continue
                    own = {
                        TopicPartition(name, number) for number, each in topic.partitions.items() if me in each.replicas
                    }
                    self._update_replicas(broker, {key: self._replicas.replica_error(key) for key in own})
        finally:  # also after an error: the next image begins another check
            self._check_task = None

    def _is_current(self, broker_id: int, image: ClusterImage) -> bool:
        """Return whether the broker's registration in `image` is the one that gets the requests."""
        return image.brokers.get(broker_id) == self._brokers[broker_id].broker

    async def all_acknowledged(self) -> None:
        """Wait, without a time-out, until all brokers have acknowledged all pending changes."""
        for state in tuple(self._brokers.values()):
            await state.sender.idle.wait()

    def close(self) -> None:
        for state in self._brokers.values():
            state.sender.close()
        self._brokers.clear()
        self.connections.close()
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
            self._brokers[broker_id].stop(each.partition, Stop(leader_epoch=each.leader_epoch, delete=True))
        if missing:
            return False
        for broker_id, each in wanted:
            if broker_id == self.identity.broker_id:
                self._replicas.stop_replica(each.partition, delete=True)
            elif broker_id in self._brokers:
                self._stopped_by(self._brokers[broker_id].broker).pop(each.partition, None)
        return True

    def unregistered(self, brokers: Iterable[int]) -> list[int]:
        """Return those of `brokers` that are not registered, and so get no requests."""
        return sorted(each for each in brokers if each != self.identity.broker_id and each not in self._brokers)

    def stop_following(self, broker_id: int, partitions: Iterable[TopicPartition]) -> None:
        """Request that a broker that shuts down stops following `partitions`, without deleting them."""
        state = self._brokers.get(broker_id)
        if state is not None:
            for key in partitions:
                partition = self.image.partition(key)
                epoch = -1 if partition is None else partition.leader_epoch
                state.stop(key, Stop(leader_epoch=epoch, delete=False))

    def _has_stopped(self, broker_id: int, wanted: StopReplicas) -> bool:
        state = self._brokers.get(broker_id)
        if state is None:
            return True
        done = self._stopped_by(state.broker).get(wanted.partition)
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
        state = self._brokers.get(broker.broker_id)
        updated_again = {} if state is None else state.sender.waiting.partitions
        self._stopped_by(broker).update(
            {key: each for key, each in stops.items() if key.partition not in updated_again.get(key.topic, ())}
        )
        if stops:
            self._view.wake()
