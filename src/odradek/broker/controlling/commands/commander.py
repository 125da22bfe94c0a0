"""The controller's voice: whatever it publishes, every other live broker is told.

A broker that registers is told everything, and so is everybody when the controller is new. A broker that is slow or
can't be reached is told as long as it is registered, and then in the last state; one that is not registered is not told
anything.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from odradek.broker.cluster.cluster_view import ClusterView
from odradek.broker.cluster.commands import OwnReplicas
from odradek.broker.controlling.availability import Availability
from odradek.broker.controlling.commands.channel import Channel
from odradek.broker.controlling.commands.messages import Sender, partitions_of
from odradek.broker.controlling.commands.outbox import Change, Stop, change_between
from odradek.broker.turns import in_turns
from odradek.controller import StopReplicas
from odradek.metadata.image import BrokerImage, ClusterImage
from odradek.model import ErrorCode, TopicPartition
from odradek.runtime import Runtime

_log = logging.getLogger("odradek.broker")


class Commander:
    """One term's; `notice` is called with every image that is published, from the first of the term on.

    `heed` is called when brokers answered something that duties may act upon.
    """

    def __init__(
        self, view: ClusterView, replicas: OwnReplicas, runtime: Runtime, *, epoch: int, heed: Callable[[], None]
    ) -> None:
        self.sender = Sender(broker_id=view.broker_id, epoch=epoch)
        self.availability = Availability()
        self._view = view
        self._replicas = replicas
        self._runtime = runtime
        self._heed = heed
        self._channels: dict[int, Channel] = {}
        self._checking: asyncio.Task[None] | None = None
        self._unchecked: set[str] = set()
        """Topics of which the controller's own logs are to be looked at."""
        self._stopped: dict[tuple[int, int], dict[TopicPartition, Stop]] = {}
        """What brokers have stopped, by their ids and epochs."""

    @property
    def image(self) -> ClusterImage:
        """The cluster as it is now."""
        return self._view.image

    def notice(self, old: ClusterImage, new: ClusterImage) -> None:
        """Tell everybody what changed."""
        self.availability.notice(new.brokers)
        change = change_between(old, new)
        for broker_id in [each for each in self._channels if not self._same(each, new)]:
            self._channels.pop(broker_id).end()
        for channel in self._channels.values():
            if change:
                self._tell(channel, change)
        for broker_id, broker in new.brokers.items():
            if broker_id != self.sender.broker_id and broker_id not in self._channels:
                self._channels[broker_id] = Channel(self, broker, self._runtime)
        self._check_later(change.partitions)

    async def ask_for_logs(self, broker_id: int) -> None:
        """Have a broker say of all its replicas which logs can't be used; nobody is asked if it is not registered."""
        replicas: dict[str, frozenset[int]] = {}
        async for topic in in_turns(tuple(self.image.topics.values())):
            own = frozenset(number for number, each in topic.partitions.items() if broker_id in each.replicas)
            if own:
                replicas[topic.name] = own
        if broker_id == self.sender.broker_id:
            self._check_later(replicas)
        elif (channel := self._channels.get(broker_id)) is not None:
            self._tell(channel, Change(brokers=False, partitions=replicas, gone={}))

    def _tell(self, channel: Channel, change: Change) -> None:
        """Who is told of a partition again follows it again, if it is a replica still: it has not stopped."""
        channel.outbox.add(change)
        channel.wake()
        answers = self._answers(channel.broker)
        for key in [key for key in answers if key.partition in change.partitions.get(key.topic, ())]:
            del answers[key]

    def _check_later(self, topics: Iterable[str]) -> None:
        self._unchecked.update(topics)
        if self._unchecked and self._checking is None:
            name = "checking the controller's own logs"
            self._checking = asyncio.get_running_loop().create_task(self._check_own_logs(), name=name)

    async def _check_own_logs(self) -> None:
        """What others say in their answers the controller's own broker is asked."""
        while self._unchecked:
            await self._replicas.settled()
            names, self._unchecked = self._unchecked, set()
            me, is_news = self.sender.broker_id, False
            async for name in in_turns(names):
                topic, broker = self.image.topics.get(name), self.image.brokers.get(me)
                if topic is None or broker is None:
                    continue
                own = {TopicPartition(name, number) for number, each in topic.partitions.items() if me in each.replicas}
                broken = {key for key in own if self._replicas.is_offline(key)}
                is_news |= self._told(broker, broken, own - broken)
            if is_news:
                self._heed()
        self._checking = None

    def _same(self, broker_id: int, image: ClusterImage) -> bool:
        """Whether the broker is in the registration that its channel is for."""
        return image.brokers.get(broker_id) == self._channels[broker_id].broker

    async def told(self) -> None:
        """Return when everybody has been told what is known by now; not for ever, if somebody does not answer."""
        for channel in tuple(self._channels.values()):
            await channel.told.wait()

    def end(self) -> None:
        """Somebody else commands now."""
        for channel in self._channels.values():
            channel.end()
        self._channels.clear()
        if self._checking is not None:
            self._checking.cancel()

    # ---- stopping replicas --------------------------------------------------------------------------------------

    def stopped(self, stops: Iterable[StopReplicas]) -> bool:
        """Whether all brokers that live have deleted these replicas.

        If not they are told to, and duties are called again when one of them has answered or died. To be asked right
        before the tree forgets the replicas: what was answered is forgotten when all have.
        """
        wanted = [(broker_id, each) for each in stops for broker_id in each.brokers]
        missing = [(broker_id, each) for broker_id, each in wanted if not self._has_stopped(broker_id, each)]
        for broker_id, each in missing:
            self._channels[broker_id].stop(each.partition, Stop(leader_epoch=each.leader_epoch, delete=True))
        if missing:
            return False
        for broker_id, each in wanted:
            if broker_id == self.sender.broker_id:
                self._replicas.stop_replica(each.partition, delete=True)
            elif broker_id in self._channels:
                self._answers(self._channels[broker_id].broker).pop(each.partition, None)
        return True

    def away(self, brokers: Iterable[int]) -> list[int]:
        """Return the brokers that are not registered, and so cannot be told anything."""
        return sorted(each for each in brokers if each != self.sender.broker_id and each not in self._channels)

    def stop_following(self, broker_id: int, partitions: Iterable[TopicPartition]) -> None:
        """Have a broker that is about to stop follow these no more, and keep them."""
        channel = self._channels.get(broker_id)
        if channel is not None:
            for key in partitions:
                partition = self.image.partition(key)
                epoch = -1 if partition is None else partition.leader_epoch
                channel.stop(key, Stop(leader_epoch=epoch, delete=False))

    def _has_stopped(self, broker_id: int, wanted: StopReplicas) -> bool:
        channel = self._channels.get(broker_id)
        if channel is None:
            return True
        done = self._answers(channel.broker).get(wanted.partition)
        return done is not None and done.delete and done.leader_epoch == wanted.leader_epoch

    def _answers(self, broker: BrokerImage) -> dict[TopicPartition, Stop]:
        return self._stopped.setdefault((broker.broker_id, broker.epoch), {})

    # ---- what channels tell -------------------------------------------------------------------------------------

    def refused(self, error: ErrorCode) -> None:
        """A broker did not believe a command: if it knows a newer controller, this one should know, too."""
        if error is ErrorCode.stale_controller_epoch:
            self._view.mark_controller()

    def logs_told(self, broker: BrokerImage, image: ClusterImage, message: Mapping[str, Any], answer: Any) -> None:
        """A broker has answered a LeaderAndIsr; the log of a partition that went wrong can't be used."""
        broken = {
            TopicPartition(name, each.partition_index)
            for topic in answer.topics
            if (name := image.topic_names.get(topic.topic_id)) is not None
            for each in topic.partition_errors
            if each.error_code is ErrorCode.kafka_storage_error
        }
        if self._told(broker, broken, partitions_of(message) - broken):
            self._heed()

    def _told(self, broker: BrokerImage, broken: Collection[TopicPartition], sound: Collection[TopicPartition]) -> bool:
        """Know what a broker says of its logs; whether that is news."""
        is_news = self.availability.told(broker, broken, sound)
        if is_news:
            count = len(self.availability.offline.get(broker.broker_id, ()))
            if count:
                _log.warning("broker %d can't use the logs of %d partitions", broker.broker_id, count)
            else:
                _log.info("broker %d can use all its logs again", broker.broker_id)
        return is_news

    def stops_told(self, broker: BrokerImage, stops: Mapping[TopicPartition, Stop], answer: Any) -> None:
        """A broker has answered a StopReplica: what it does not delete, as it knows better, is not its any more."""
        del answer
        channel = self._channels.get(broker.broker_id)
        told_again = {} if channel is None else channel.outbox.partitions
        self._answers(broker).update(
            {key: each for key, each in stops.items() if key.partition not in told_again.get(key.topic, ())}
        )
        self._heed()
