"""A follower that is replaced, or moves on, while a fetcher writes or waits for the one before."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.broker.log.errors import LogStorageError
from odradek.broker.log.log_config import LogConfig
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.replication.replica_fetcher import FetcherContext, ReplicaFetcher
from odradek.broker.security.quotas.replication_quotas import ReplicationQuotaManager
from odradek.config.broker import BrokerConfig
from odradek.config.definition import LONG_MAX
from odradek.model import ErrorCode, KafkaError, TopicPartition
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
        self.is_current = True
        self.truncations: list[int] = []
        self.log_failed = self.refused = self.failures.append

    def is_current_position(self, _: object) -> bool:
        return self.is_current

    def truncate_to(self, offset: int, _: object) -> None:
        self.truncations.append(offset)

    def append_fetched(self, *_: object) -> "asyncio.Future[KafkaError | None]":
        return self.writing


def _fetcher(simulation: Simulation, answer: FetchedPartition) -> Any:
    """Return a fetcher whose next response has `answer`."""
    runtime, unused = simulation.runtime(), cast("Any", SimpleNamespace(replication_bytes_in=0))
    quota = ReplicationQuotaManager(runtime.clock, 11, 1.0, lambda: LONG_MAX)
    context = FetcherContext(MetadataCache(BrokerConfig()), runtime.clock, unused, unused, quota)
    fetcher: Any = ReplicaFetcher(context, 1, 0)
    fetcher._session = SimpleNamespace(handle_response=lambda *_: {KEY: answer})
    return fetcher


def test_a_follower_has_no_part_in_the_failure_of_the_one_that_it_replaces(seed: int) -> None:
    """The log of the one before may have been deleted, or its disk may have failed."""
    simulation = Simulation(seed)

    async def main() -> None:
        fetcher = _fetcher(simulation, FetchedPartition(0, 0))
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


@pytest.mark.parametrize(("moves_on", "truncations"), [(False, [3]), (True, [])])
def test_a_late_answer_about_offsets_truncates_no_log_that_has_moved_on(
    seed: int, moves_on: bool, truncations: list[int]
) -> None:
    """The follower may have another leader epoch or position by then, and records that are committed."""
    simulation = Simulation(seed)

    async def main() -> None:
        fetcher, follower = _fetcher(simulation, FetchedPartition(0, ErrorCode.offset_out_of_range)), FakeFollower()
        fetcher.followers[KEY] = follower

        async def list_offset(*_: object) -> int:
            follower.is_current = not moves_on
            return 3

        fetcher._list_offset = list_offset
        await fetcher._receive({KEY: SimpleNamespace(offset=7)}, None)
        assert follower.truncations == truncations
        fetcher._task.cancel()

    simulation.run(main())
