"""A follower that is replaced while a fetcher writes for the one before."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from odradek.broker.log.errors import LogStorageError
from odradek.broker.log.log_config import LogConfig
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.replication.replica_fetcher import FetcherContext, ReplicaFetcher
from odradek.broker.security.quotas.replication_quotas import ReplicationQuotaManager
from odradek.config.broker import BrokerConfig
from odradek.config.definition import LONG_MAX
from odradek.model import KafkaError, TopicPartition
from odradek.protocol.messages.fetch import FetchedPartition
from odradek.simulation.virtual.simulation import Simulation

KEY = TopicPartition("t", 0)


class FakeFollower:
    """A follower whose append ends when a test says so."""

    topic_partition = KEY
    log = SimpleNamespace(config=LogConfig())

    def __init__(self) -> None:
        self.writing: asyncio.Future[KafkaError | None] = asyncio.get_running_loop().create_future()
        self.failures: list[KafkaError] = []
        self.log_failed = self.refused = self.failures.append

    def is_current_position(self, _: object) -> bool:
        return True

    def append_fetched(self, *_: object) -> "asyncio.Future[KafkaError | None]":
        return self.writing


def test_a_follower_has_no_part_in_the_failure_of_the_one_that_it_replaces(seed: int) -> None:
    """The log of the one before may have been deleted, or its disk may have failed."""
    simulation = Simulation(seed)

    async def main() -> None:
        runtime, unused = simulation.runtime(), cast("Any", SimpleNamespace(replication_bytes_in=0))
        quota = ReplicationQuotaManager(runtime.clock, 11, 1.0, lambda: LONG_MAX)
        context = FetcherContext(MetadataCache(BrokerConfig()), runtime.clock, unused, unused, quota)
        fetcher: Any = ReplicaFetcher(context, 1, 0)
        fetcher._session = SimpleNamespace(handle_response=lambda *_: {KEY: FetchedPartition(0, 0)})
        before, after = FakeFollower(), FakeFollower()
        fetcher.followers[KEY] = before
        receiving = asyncio.ensure_future(fetcher._receive({KEY: None}, None))
        await asyncio.sleep(1)
        fetcher.followers[KEY] = after
        before.writing.set_result(LogStorageError("its disk has failed"))
        await receiving
        assert after.failures == []
        fetcher._task.cancel()

    simulation.run(main())
