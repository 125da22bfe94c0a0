"""An EndTxn that is delivered after its repetition, as Jepsen found it with Kafka (KAFKA-17754).

By protocol version 1 it ends a later transaction of the same producer; by version 2 that has another epoch.
"""

from collections.abc import Callable
from typing import Final

import pytest

from odradek.model import ErrorCode, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.simulation.seed_run import SeedPlan, run_seed
from odradek.simulation.transaction_histories import Anomaly, Outcome, TransactionHistory, findings
from odradek.simulation.world import World
from tests.broker.transactions.test_transactions_in_brokers import started
from tests.world.sampling import assert_no_findings, seeds

Play = Callable[..., None]
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
VERSIONS: Final = {1: 4, 2: 5}
"""The version of EndTxn by `transaction.version`."""


async def read_committed(world: World, history: TransactionHistory) -> None:
    """Add the committed logs to the history."""
    async with world.consumer("reader", isolation_level="read_committed") as reader:
        reader.assign([T0, T1])
        logs: dict[TopicPartition, list[tuple[int, bytes]]] = {T0: [], T1: []}
        ends = await reader.end_offsets([T0, T1])
        while any([await reader.position(place) < end for place, end in ends.items()]):
            for record in await reader.poll(1000):
                logs[TopicPartition(record.topic, record.partition)].append((record.offset, record.value or b""))
    for place, log in logs.items():
        history.audit(place, log)


@pytest.mark.parametrize(
    ("was_commit", "is_commit", "version", "found"),
    [
        (True, False, 1, {Anomaly.ABORTED_READ, Anomaly.TORN}),
        (False, True, 1, {Anomaly.LOST, Anomaly.TORN}),
        (True, False, 2, set()),
        (False, True, 2, set()),
    ],
    ids=[
        "version 1: an aborted read, and a torn transaction",
        "version 1: a lost write, and a torn transaction",
        "version 2: a delayed commit does nothing",
        "version 2: a delayed abort does nothing",
    ],
)
def test_a_delayed_end_affects_the_next_transaction_only_by_version_1(
    play: Play, was_commit: bool, is_commit: bool, version: int, found: set[Anomaly]
) -> None:
    """The first transaction is ended, by a repeated request; the first request arrives in the middle of the second."""
    history = TransactionHistory()

    async def scenario(world: World) -> None:
        client, end_version = await started(world, t=2), VERSIONS[version]
        await client.write(("t", 0))
        first = history.begin("a")
        first.write(T0, b"value")
        first.outcome = Outcome.COMMITTED if was_commit else Outcome.ABORTED
        delayed = {**client.fields, "committed": was_commit}
        assert await client.end(is_commit=was_commit, version=end_version) is ErrorCode.none
        transaction = history.begin("a")
        for place, value in ((T0, b"one"), (T1, b"two")):
            transaction.write(place, value)
            assert await client.add(place) == [ErrorCode.none]
            assert await client.produce(*place, value) is ErrorCode.none
            if place == T0:
                answer = await client.until_done(ApiKey.END_TXN, delayed, end_version)
                assert answer.error_code == (ErrorCode.none if version == 1 else ErrorCode.producer_fenced)
        if is_commit:
            transaction.ending(now=world.now_s)
        assert await client.end(is_commit=is_commit, version=end_version) is ErrorCode.none
        transaction.outcome = Outcome.COMMITTED if is_commit else Outcome.ABORTED
        await client.until_state("CompleteCommit" if is_commit else "CompleteAbort")
        await read_committed(world, history)

    play(scenario, transaction_partition_verification_enable="true")
    assert {each.anomaly for each in findings(history)} == found


# ---- Virtual time ----------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("seed", seeds(2))
def test_transactions_are_isolated_and_atomic_amid_faults(seed: int) -> None:
    result = run_seed(SeedPlan(seed=seed, workloads=("transactions",)))
    assert_no_findings(result)
