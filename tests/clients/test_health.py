"""The problems of a cluster are sentences with a command that details them."""

import pytest

from odradek.clients import Admin
from odradek.clients.admin.descriptions import BrokerDescription, ClusterDescription, TopicDescription
from odradek.clients.admin.health import ClusterState, cluster_state, problems_of
from odradek.clients.admin.log_dirs import LogDirDescription
from odradek.clients.metadata import PartitionMetadata
from odradek.model import ErrorCode
from odradek.testing import Cluster


def _state(
    *partitions: tuple[int, tuple[int, ...], tuple[int, ...]],
    controller: int = 1,
    fenced: int | None = None,
    log_dir: LogDirDescription | None = None,
    min_isr: int = 1,
) -> ClusterState:
    """A topic t with these partitions (leader, replicas, ISR) on the brokers 1, 2 and 3."""
    brokers = tuple(
        BrokerDescription(broker_id=number, host="h", port=9092, rack=None, is_fenced=number == fenced)
        for number in (1, 2, 3)
    )
    described = {
        number: PartitionMetadata(leader=leader, leader_epoch=0, replicas=replicas, isr=isr)
        for number, (leader, replicas, isr) in enumerate(partitions)
    }
    return ClusterState(
        cluster=ClusterDescription(cluster_id="c", controller_id=controller, brokers=brokers),
        topics=[TopicDescription(name="t", topic_id=None, is_internal=False, partitions=described)],
        log_dirs={1: [log_dir]} if log_dir else {1: None},
        min_isr={"t": min_isr},
    )


def _log_dir(code: ErrorCode = ErrorCode.none, usable: int = 50) -> LogDirDescription:
    return LogDirDescription(log_dir="/d", error_code=code, sizes={}, total_bytes=100, usable_bytes=usable)


WELL = (1, (1, 2), (1, 2))
OFFLINE = _log_dir(ErrorCode.kafka_storage_error)


@pytest.mark.parametrize(
    ("state", "words", "command"),
    [
        (_state(WELL, controller=-1), "no controller", "odradek brokers list"),
        (_state(WELL, fenced=3), "Broker 3 is registered", "odradek brokers list"),
        (_state((-1, (2, 3), (2,))), "1 partition has no leader", "odradek partitions describe --unavailable"),
        (_state((1, (1, 2), (1,))), "not in sync: t-0.", "odradek partitions describe --under-replicated"),
        (_state(*[(2, (1, 2), (1, 2))] * 7), "7 of 7 partitions", "odradek brokers describe"),
        (_state((1, (1,), (1,)), WELL), "1 of 1 topics have partitions with one replica", "odradek topics describe t"),
        (_state(WELL, log_dir=OFFLINE), "/d of broker 1 is offline", "odradek brokers describe 1"),
        (_state(WELL, log_dir=_log_dir(usable=4)), "is 96.0% full", "odradek brokers describe 1"),
    ],
)  # fmt: skip
def test_a_fault_is_a_sentence_with_a_command(state: ClusterState, words: str, command: str) -> None:
    (problem,) = problems_of(state)
    assert words in problem.sentence
    assert problem.command == command


def test_a_cluster_in_order_has_no_problems() -> None:
    assert problems_of(_state(WELL, log_dir=_log_dir())) == []


def test_severe_problems_come_first_and_long_lists_are_cut() -> None:
    found = problems_of(_state(*[(1, (1, 2), (1,))] * 8, min_isr=2))
    assert ["acks=all" in each.sentence for each in found] == [True, False]
    assert all(each.sentence.endswith("t-4 and 3 more.") for each in found)


@pytest.mark.asyncio
async def test_the_state_of_a_real_cluster_has_topics_and_disks(kafka: Cluster) -> None:
    kafka.create_topic("healthy", partitions=2)
    async with Admin(kafka.bootstrap_servers) as admin:
        state = await cluster_state(admin)
    assert "healthy" in {each.name for each in state.topics}
    assert [directory.error_code for directories in state.log_dirs.values() for directory in directories or ()] == [0]
    assert not any(each.is_severe for each in problems_of(state) if "full" not in each.sentence)
