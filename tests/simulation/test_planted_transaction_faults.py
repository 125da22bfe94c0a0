"""Planted faults of brokers and clients, each of which the checks of transactions find within a few seeds."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pytest
from msgspec.structs import replace

from odradek.broker.groups.machine.offsets import Offsets
from odradek.broker.replication.partition import Partition
from odradek.broker.replication.reading import partition_reader
from odradek.broker.transactions.machine import transaction_machine
from odradek.broker.transactions.machine.transaction import TransactionMetadata
from odradek.broker.transactions.machine.transaction_machine import TransactionMachine
from odradek.broker.transactions.transaction_markers import MarkerWriter
from odradek.clients.consumer.fetching.fetcher import Fetcher
from odradek.clients.producer.producer_batch import ProducerBatch
from odradek.protocol.batches.records import decode_records, encode_batch
from odradek.simulation.promises import READERS
from odradek.simulation.seed_run import SeedPlan, run_seed
from odradek.simulation.setup import CONFIG
from tests.simulation.planting import replaces

pytestmark = pytest.mark.long

FOUND_WITHIN: Final = 8
"""Seeds in which each planted fault is found."""
Plant = Callable[[pytest.MonkeyPatch], None]


def consumers_read_beyond_the_last_stable_offset(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "last_stable_offset", property(lambda partition: partition.high_watermark))


def responses_lack_the_aborted_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(partition_reader, "_aborted", lambda *_: ())


@replaces(MarkerWriter, "_begin")
def one_partition_gets_the_opposite_marker(
    begin: Any, writer: Any, writes: Any, marker: Any, place: Any, now_ms: int
) -> None:
    if (place.topic, place.partition) == ("in", 1):
        marker = type(marker)(**{**_fields(marker), "is_commit": not marker.is_commit})
    begin(writer, writes, marker, place, now_ms)


def producers_are_not_fenced_by_their_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transaction_machine, "_check_producer", lambda known, producer: None)


def offsets_are_visible_before_the_marker(patch: pytest.MonkeyPatch) -> None:
    put = Offsets.put

    def apply(offsets: Any, producer_id: int, *rest: Any) -> None:
        put(offsets, *rest)

    patch.setattr(Offsets, "put_transactional", apply)


def offsets_of_aborted_transactions_are_committed(patch: pytest.MonkeyPatch) -> None:
    end = Offsets.end_transaction
    patch.setattr(
        Offsets, "end_transaction", lambda offsets, producer_id, *, committed: end(offsets, producer_id, committed=True)
    )


def a_repeated_end_succeeds_with_the_other_result(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(transaction_machine, "_refuse_state", lambda known, request: None)


def commits_are_answered_and_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The transaction is recorded as aborted."""
    ended = TransactionMetadata.ended
    patch.setattr(
        TransactionMetadata, "ended", lambda known, *, is_commit, **rest: ended(known, is_commit=False, **rest)
    )


@replaces(TransactionMachine, "_fence")
def a_timeout_does_not_fence_the_producer(
    fence: Any, machine: Any, known: Any, replies: Any, events: Any, now: Any
) -> Any:
    """The producer keeps its epoch, and so its later records are a transaction of their own."""
    if not events:
        return fence(machine, known, replies, events, now)
    aborted = known.ended(is_commit=False, client_version=0, new_producer_id=-1, now_ms=now.wall_ms)
    return transaction_machine._prepared(aborted, replies, events)


@replaces(TransactionMachine, "on_elected")
def a_new_coordinator_sends_no_markers(elected: Any, machine: Any, image: Any, now: Any) -> Iterator[Any]:
    """A transaction that was ended before the election stays in PrepareCommit or PrepareAbort."""
    list(elected(machine, image, now))
    yield from ()


def partitions_are_not_verified(patch: pytest.MonkeyPatch) -> None:
    """A late batch of transaction version 1 begins a transaction that the coordinator does not know."""
    patch.setitem(CONFIG, "transaction.partition.verification.enable", "false")


@replaces(transaction_machine, "_prepared")
def markers_are_sent_before_the_end_is_committed(prepared: Any, *arguments: Any) -> Any:
    result = prepared(*arguments)
    return replace(result, events=result.events + result.committed_events, committed_events=())


@replaces(Fetcher, "__init__")
def processors_read_uncommitted_records(create: Any, fetcher: Any, cluster: Any, settings: Any, *rest: Any) -> None:
    create(fetcher, cluster, settings, *rest)
    is_auditor = settings.fetch_max_wait_ms != READERS["fetch_max_wait_ms"]
    if settings.group_id and not is_auditor:
        fetcher._limits = replace(fetcher._limits, isolation_level="read_uncommitted")


def acknowledgements_have_offset_0(patch: pytest.MonkeyPatch) -> None:
    """As Jepsen found in Bufstream 0.1.0."""
    complete = ProducerBatch.complete
    patch.setattr(ProducerBatch, "complete", lambda batch, base_offset, time: complete(batch, 0, time))


@replaces(ProducerBatch, "encode")
def batches_have_their_records_in_reverse(encode: Any, batch: Any, *options: Any) -> bytearray:
    if batch.records is None:
        records = decode_records(encode(batch, *options))
        batch.records = encode_batch(
            [record[1:] for record in reversed(records)],
            codec=options[0],
            producer_id=batch.producer_id,
            producer_epoch=batch.producer_epoch,
            base_sequence=batch.base_sequence,
            is_transactional=batch.is_transactional,
        )
        batch.futures.reverse()
    return encode(batch, *options)


PLANTS: Final[list[Plant]] = [
    consumers_read_beyond_the_last_stable_offset,
    responses_lack_the_aborted_transactions,
    one_partition_gets_the_opposite_marker,
    producers_are_not_fenced_by_their_epoch,
    offsets_are_visible_before_the_marker,
    offsets_of_aborted_transactions_are_committed,
    a_repeated_end_succeeds_with_the_other_result,
    commits_are_answered_and_forgotten,
    a_timeout_does_not_fence_the_producer,
    a_new_coordinator_sends_no_markers,
    partitions_are_not_verified,
    markers_are_sent_before_the_end_is_committed,
    processors_read_uncommitted_records,
    acknowledgements_have_offset_0,
    batches_have_their_records_in_reverse,
]
AIMED: Final[dict[Plant, Sequence[str]]] = {
    a_timeout_does_not_fence_the_producer: ("oversleep",),
    a_new_coordinator_sends_no_markers: ("crash_at_an_end",),
    partitions_are_not_verified: ("abort_while_requests_are_held",),
    markers_are_sent_before_the_end_is_committed: ("crash_at_an_end",),
}
"""The faults of the schedule that reveal a planted fault, for those that need one of many."""
SEEDS: Final[dict[Plant, Sequence[int]]] = {
    partitions_are_not_verified: [66],
    a_repeated_end_succeeds_with_the_other_result: range(9, 9 + FOUND_WITHIN),
}
"""The seeds that are tried, where they are not the first ones."""


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_of_transactions_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    seeds = SEEDS.get(plant, range(FOUND_WITHIN))
    assert any(is_found(seed, AIMED.get(plant, ())) for seed in seeds)


def is_found(seed: int, faults: Sequence[str]) -> bool:
    return bool(run_seed(SeedPlan(seed=seed, workloads=("transactions",), faults=tuple(faults))).findings)


def _fields(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__struct_fields__}
