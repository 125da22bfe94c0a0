"""Planted faults of logs, replication and the controller, one at a time, each of which a seed finds.

docs/reliability.md says how many seeds each one needs. `test_group_histories_in_virtual_time.py` has those of groups,
`test_planted_transaction_faults.py` those of transactions, `test_planted_faults_of_clients.py` those of logins.
"""

from collections.abc import Iterable, Mapping
from importlib import import_module
from itertools import count
from typing import Any, Final

import pytest
from msgspec.structs import replace

from odradek.broker.cluster.metadata import metadata_loop
from odradek.broker.handlers import delete_records
from odradek.broker.log import log
from odradek.broker.log.checkpoints.leader_epoch_cache import LeaderEpochs
from odradek.broker.log.cleaner import log_cleaner
from odradek.broker.log.cleaner.offset_map import OffsetMap
from odradek.broker.log.directories import directory_loading
from odradek.broker.log.log import Log
from odradek.broker.log.producers.producer_state import ProducerState
from odradek.broker.log.recovery import segment_recovery
from odradek.broker.log.segments.segment import Segment
from odradek.broker.replication.follower import Follower
from odradek.broker.replication.machine.leader import LeaderReplication, RemoteReplica
from odradek.broker.replication.partition import Partition
from odradek.broker.replication.reading.partition_reader import PartitionReader
from odradek.broker.serving.fetch_sessions import FetchSession, FetchTarget, PartitionKey
from odradek.clients.consumer.fetching.position_validator import PositionValidator
from odradek.metadata import paths
from odradek.metadata.nodes import ProducerIdBlockNode, decode_integer
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.simulation.faults import aimed
from odradek.simulation.faults.catalogue import FAULTS
from odradek.simulation.seed_run import SeedPlan
from tests.simulation.planting import Plant, assert_found, replaces

pytestmark = pytest.mark.long

elections: Any = import_module("odradek.broker.controller.machine.elections")
"""The module, which the function of this name hides in its package."""


# ---- what is committed, and when it is acknowledged


def acknowledgements_before_replication(patch: pytest.MonkeyPatch) -> None:
    when_reached = Partition.when_reached

    def soon(partition: Any, info: Any, *, acks: int, waiter: Any) -> None:
        when_reached(partition, info.last_offset + 1, acks=1, waiter=waiter)

    patch.setattr(Partition, "when_acknowledged", soon)


@replaces(Partition, "when_acknowledged")
def duplicates_are_acknowledged_before_they_are_committed(
    when_acknowledged: Any, partition: Any, info: Any, *, acks: int, waiter: Any
) -> None:
    when_acknowledged(partition, info, acks=1 if info.duplicate else acks, waiter=waiter)


@replaces(LeaderReplication, "advance")
def the_high_watermark_ignores_followers(_original: Any, replication: Any, **_: Any) -> bool:
    before, replication.high_watermark = replication.high_watermark, replication.log_end_offset
    return bool(replication.high_watermark > before)


def a_pending_removal_from_the_isr_counts_already(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        LeaderReplication, "maximal_isr", property(lambda led: led.isr if led.pending is None else led.pending.isr)
    )


@replaces(RemoteReplica, "fetched")
def a_fetch_acknowledges_all_that_the_leader_has(
    fetched: Any, remote: Any, offset: int, *, leader_end_offset: int, **more: Any
) -> None:
    del offset
    fetched(remote, leader_end_offset, leader_end_offset=leader_end_offset, **more)


def min_insync_replicas_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "min_insync_replicas", 1)


@replaces(Partition, "_begin")
def a_new_leader_takes_its_log_for_committed(
    begin: Any, partition: Any, image: Any, before: Any = None
) -> LeaderReplication:
    replication = begin(partition, image, before)
    replication.high_watermark = replication.log_end_offset
    partition.log.producers.committed(replication.high_watermark)
    return replication


@replaces(LeaderReplication, "propose_join")
def followers_join_the_isr_before_they_have_caught_up(_: Any, led: Any, replica: int) -> Any:
    is_member = led.pending is not None or replica not in led.remotes or replica in led.isr
    return None if is_member else led._propose((*led.isr, replica))


def followers_show_more_than_is_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Follower, "high_watermark", property(lambda follower: follower.log.written_offset))


def what_is_acknowledged_after_an_unclean_election_is_lost(patch: pytest.MonkeyPatch) -> None:
    """As by `acknowledgements_before_replication`, in the leader epochs after the first election."""
    when_acknowledged, when_reached = Partition.when_acknowledged, Partition.when_reached

    def soon(partition: Any, info: Any, *, acks: int, waiter: Any) -> None:
        if partition.leader_epoch < 2:
            when_acknowledged(partition, info, acks=acks, waiter=waiter)
        else:
            when_reached(partition, info.last_offset + 1, acks=1, waiter=waiter)

    patch.setattr(Partition, "when_acknowledged", soon)


# ---- unclean elections


def every_topic_allows_unclean_elections(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(elections, "_allows_unclean", lambda *_: True)


@replaces(PositionValidator, "_compare")
def consumers_do_not_notice_truncations(_: Any, validator: Any, state: Any, end_offset: int, epoch: int) -> None:
    del validator, end_offset, epoch
    state.is_validated = True


# ---- what followers keep


def divergence_is_not_detected(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "divergence", lambda *_: None)


def followers_truncate_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """As Kafka did before KIP-101."""
    divergence_is_not_detected(patch)
    update, create = Follower.update, Follower.__init__

    def truncate(follower: Any) -> None:
        if follower.leader >= 0 and follower.log.high_watermark < follower.log.written_offset:
            follower.truncate_to(follower.log.high_watermark, 0)

    def begin(follower: Any, **given: Any) -> None:
        create(follower, **given)
        truncate(follower)

    def follow(follower: Any, image: Any) -> None:
        before = follower.leader_epoch
        update(follower, image)
        if follower.leader_epoch != before:
            truncate(follower)

    patch.setattr(Follower, "__init__", begin)
    patch.setattr(Follower, "update", follow)


# ---- what consumers get


@replaces(PartitionReader, "read")
def followers_hide_their_first_batch(
    read: Any, reader: Any, partition: Any, position: Any, *rest: Any, **more: Any
) -> Any:
    """Consumers that begin at a follower miss it."""
    answer, more_to_read = read(reader, partition, position, *rest, **more)
    if isinstance(partition, Follower) and position.fetch_offset == 0 and answer.records:
        _, second = [*(place for place, _ in iterate_batches(answer.records)), len(answer.records)][:2]
        answer = answer._replace(records=answer.records[second:])
    return answer, more_to_read


def the_leader_epoch_cache_is_not_truncated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderEpochs, "truncate_from_end", lambda *_: None)


@replaces(LeaderEpochs, "truncate_from_end")
def the_latest_epoch_outlives_its_records(truncate: Any, epochs: LeaderEpochs, end_offset: int) -> None:
    latest, recorded = epochs.latest, epochs.recorded
    truncate(epochs, end_offset)
    epochs.latest, epochs.recorded = latest, recorded


def a_fetch_session_forgets_a_partition(patch: pytest.MonkeyPatch) -> None:
    update, calls = FetchSession.update, count(1)

    def forget(session: FetchSession, wanted: Iterable[FetchTarget], forgotten: Iterable[PartitionKey]) -> None:
        wanted = list(wanted)
        update(session, wanted, forgotten)
        unchanged = [key for key in session.targets if key not in [each.key for each in wanted]]
        if next(calls) % 100 == 0 and unchanged:
            del session.targets[unchanged[0]]

    patch.setattr(FetchSession, "update", forget)


# ---- the controller


@replaces(metadata_loop, "next_producer_id_block")
def producer_ids_are_given_twice(_: Any, latest: object, broker_id: int) -> ProducerIdBlockNode:
    return ProducerIdBlockNode(broker_id=broker_id, first=0, last=999)


@replaces(metadata_loop, "register_controller")
async def every_broker_claims_the_controller_in_one_epoch(
    register: Any, store: Any, broker_id: int, now_ms: int
) -> tuple[int, int] | None:
    if await store.get(paths.CONTROLLER) is None:
        return await register(store, broker_id, now_ms)
    node = await store.get(paths.CONTROLLER_EPOCH)
    return decode_integer(paths.CONTROLLER_EPOCH, node.data), node.version


@replaces(elections, "new_leadership")
def an_election_keeps_the_leader_epoch(lead: Any, key: Any, partition: Any, *rest: Any, **more: Any) -> Any:
    change = lead(key, partition, *rest, **more)
    return replace(change, state=replace(change.state, leader_epoch=partition.leader_epoch))


# ---- logs and producers


def repeated_batches_are_appended_again(patch: pytest.MonkeyPatch) -> None:
    check = ProducerState.check
    patch.setattr(ProducerState, "find", lambda *_: None)
    patch.setattr(ProducerState, "check", lambda state, header, **_: check(state, header, has_sequence=False))


@replaces(ProducerState, "check")
def gaps_of_sequences_are_accepted(check: Any, *given: Any, **more: Any) -> Any:
    try:
        return check(*given, **more)
    except KafkaError as error:
        if error.code is ErrorCode.out_of_order_sequence_number:
            return None
        raise


@replaces(ProducerState, "replay")
def followers_do_not_know_producers(replay: Any, state: Any, header: Any, marker: Any, *, now_ms: int = -1) -> Any:
    return replay(state, header, marker) if now_ms < 0 else None


@replaces(log, "load")
def a_restart_loses_the_state_of_producers(load: Any, *given: Any, **more: Any) -> Any:
    loaded = load(*given, **more)
    loaded.producers = ProducerState()
    return loaded


def recovery_keeps_torn_batches(patch: pytest.MonkeyPatch) -> None:
    class AnyChecksum(int):
        def __ne__(self, other: object) -> bool:
            return False

    patch.setattr(segment_recovery, "crc32c", lambda *_: AnyChecksum())


@replaces(directory_loading, "_read_checkpoint")
def a_restart_loses_the_log_start_offset(read: Any, disk: Any, directory: str, name: str) -> Any:
    return {} if name == directory_loading.LOG_START_OFFSETS else read(disk, directory, name)


@replaces(Log, "advance_log_start_offset")
def deletions_reach_beyond_the_high_watermark(
    advance: Any, written: Log, offset: int, *, high_watermark: int | None = None
) -> None:
    advance(written, min(offset, written.written_offset))


def an_index_is_one_off(patch: pytest.MonkeyPatch) -> None:
    find = Segment.find
    patch.setattr(
        Segment, "find", lambda segment, offset: find(segment, min(offset + 1, max(segment.next_offset - 1, offset)))
    )


def retention_deletes_all_but_the_active_segment(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(log, "count_expired", lambda segments, config, **_: max(len(segments) - 1, 0))


@replaces(delete_records, "_wait_for_replicas")
async def deletions_are_acknowledged_before_followers_know_them(_original: Any, *_: Any) -> None:
    pass


def compaction_drops_the_last_value_of_a_key(patch: pytest.MonkeyPatch) -> None:
    """In the plain filter: the compiled one reads the map's memory itself."""
    get, plain = OffsetMap.get, log_cleaner.PlainRecordFilter
    patch.setattr(log_cleaner, "_new_filter", lambda *_: plain(OffsetMap(1 << 20, 0.9, secret=bytes(16))))
    patch.setattr(OffsetMap, "get", lambda offsets, keys: [offset + 1 for offset in get(offsets, keys)])


def compaction_removes_tombstones_early(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("odradek.broker.log.cleaner.compaction._LONGEST_RETENTION_MS", 0)


@replaces(log_cleaner, "measure")
def compaction_does_not_wait_for_open_transactions(
    measure: Any, cleaned: Log, offset: Any, *, stable_offset: int, now_ms: int
) -> Any:
    return measure(cleaned, offset, stable_offset=cleaned.written_offset, now_ms=now_ms)


# ---- seeds

AIMED: Final = tuple(name for name, fault in FAULTS.items() if fault.__module__ == aimed.__name__)


def records(seed: int, workload: str = "records", **config: str) -> SeedPlan:
    """Return the plan of `odradek sim --workload WORKLOAD --seed SEED` with the faults that are aimed by state."""
    return SeedPlan(seed=seed, workloads=(workload,), faults=AIMED, config=config)


FOUND_BY: Final[Mapping[Plant, SeedPlan]] = {
    acknowledgements_before_replication: records(0),
    duplicates_are_acknowledged_before_they_are_committed: records(0),
    the_high_watermark_ignores_followers: records(0),
    a_pending_removal_from_the_isr_counts_already: records(0),
    a_fetch_acknowledges_all_that_the_leader_has: records(0),
    min_insync_replicas_is_ignored: records(0),
    a_new_leader_takes_its_log_for_committed: records(38),
    followers_join_the_isr_before_they_have_caught_up: records(0),
    followers_show_more_than_is_committed: records(0),
    gaps_of_sequences_are_accepted: records(0, "sequences"),
    repeated_batches_are_appended_again: records(0),
    followers_do_not_know_producers: records(0),
    a_restart_loses_the_state_of_producers: records(4),
    divergence_is_not_detected: records(0),
    followers_truncate_to_the_high_watermark: records(20),
    an_election_keeps_the_leader_epoch: records(0),
    every_broker_claims_the_controller_in_one_epoch: SeedPlan(
        seed=1, workloads=("records",), faults=("depose", "expire", "kill"), count=8
    ),
    the_leader_epoch_cache_is_not_truncated: records(0),
    the_latest_epoch_outlives_its_records: records(0),
    a_fetch_session_forgets_a_partition: records(0, brokers="3", partitions="3"),
    producer_ids_are_given_twice: records(0),
    recovery_keeps_torn_batches: SeedPlan(seed=17, workloads=("records",), faults=("cut_power",)),
    a_restart_loses_the_log_start_offset: records(0, "deletions"),
    deletions_reach_beyond_the_high_watermark: records(1, "deletions"),
    compaction_removes_tombstones_early: SeedPlan(seed=34, workloads=("compacted",), faults=("blink", "kill")),
    compaction_does_not_wait_for_open_transactions: SeedPlan(
        seed=8, workloads=("compacted",), faults=("kill", "force_cleaner", "blink")
    ),
    an_index_is_one_off: records(0),
    followers_hide_their_first_batch: records(0, **{"replica.selector.class": "rack-aware"}),
    retention_deletes_all_but_the_active_segment: records(
        0, **{"log.segment.bytes": "1024", "log.retention.check.interval.ms": "1000"}
    ),
    deletions_are_acknowledged_before_followers_know_them: records(0, "deletions"),
    compaction_drops_the_last_value_of_a_key: records(0, "compacted"),
    what_is_acknowledged_after_an_unclean_election_is_lost: records(0, "unclean"),
    every_topic_allows_unclean_elections: SeedPlan(seed=0, workloads=("records",), faults=("kill_in_sync",)),
    consumers_do_not_notice_truncations: SeedPlan(
        seed=3, workloads=("unclean",), faults=("kill_in_sync", "disconnect_client")
    ),
}
"""A seed that finds each planted fault."""
MOST_SEEDS: Final = 8
"""The number of seeds, from that one on, that are tried: a change of the simulator changes what each seed does."""


PATIENCE_S: Final[Mapping[Plant, float]] = {
    divergence_is_not_detected: 60.0,
    an_election_keeps_the_leader_epoch: 60.0,
    every_broker_claims_the_controller_in_one_epoch: 30.0,
    consumers_do_not_notice_truncations: 30.0,
    the_leader_epoch_cache_is_not_truncated: 30.0,
    the_latest_epoch_outlives_its_records: 30.0,
    a_fetch_session_forgets_a_partition: 30.0,
}
"""Shorter limits, for faults after which the cluster never recovers."""


@pytest.mark.parametrize("plant", FOUND_BY, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found_by_a_seed(plant: Plant) -> None:
    assert_found(plant, FOUND_BY[plant], most=MOST_SEEDS, patience_s=PATIENCE_S.get(plant, 300.0))
