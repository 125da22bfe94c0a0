"""Kills the broker that leads a partition while the pipelines run, and measures the recovery."""

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

from odradek.clients import Admin
from odradek.clients.metadata import NO_LEADER, PartitionMetadata
from odradek.model import TopicPartition, UnavailableError
from odradek.runtime import SystemClock
from odradek.testing.servers.odradek_process import SupervisedBrokers

_PAUSE_S: Final = 0.05
_PATIENCE_S: Final = 120.0
_CLOCK: Final = SystemClock()


class LeaderKill:
    """Kills the leader of `partition`, once, and watches in a thread of `pool` until all replicas are in sync again."""

    def __init__(self, cluster: SupervisedBrokers, partition: TopicPartition, pool: ThreadPoolExecutor) -> None:
        self._cluster = cluster
        self._partition = partition
        self._pool = pool
        self._result: Future[str] | None = None

    def start(self) -> None:
        """Start killing the leader, unless that was started before; return at once."""
        if self._result is None:
            self._result = self._pool.submit(lambda: asyncio.run(self._watch()))

    def result(self) -> str:
        """Return a sentence about the kill. Raises `UnavailableError` if replicas are not in sync again in time."""
        return "nobody: the pipelines were too fast" if self._result is None else self._result.result()

    async def _watch(self) -> str:
        async with Admin(self._cluster.bootstrap_servers) as admin:
            before = await self._look(admin)
            victim = before.leader
            pid = self._cluster.kill_broker(victim)
            began_at = _CLOCK.monotonic()
            led: tuple[int, float] | None = None
            while (passed := _CLOCK.monotonic() - began_at) < _PATIENCE_S:
                now = await self._look(admin)
                if led is None and now.leader not in (victim, NO_LEADER):
                    led = now.leader, passed
                if led is not None and set(now.isr) == set(before.replicas) and self._cluster.broker_pid(victim) != pid:
                    return (
                        f"broker {victim}, the leader of {self._partition}, with kill -9: led by broker {led[0]} "
                        f"after {led[1]:.1f} s, whole again after {passed:.1f} s"
                    )
                await asyncio.sleep(_PAUSE_S)
        raise UnavailableError(f"{_PATIENCE_S:.0f} s after broker {victim} was killed, {self._partition} is not whole")

    async def _look(self, admin: Admin) -> PartitionMetadata:
        topic = (await admin.describe_topics([self._partition.topic]))[self._partition.topic]
        return topic.partitions[self._partition.partition]
