"""M6. `kill -9` of a coordinator in the middle of a rebalance, in processes, over SQLite and over ZooKeeper.

The five phases of SPEC 6 are in `tests/broker/groups/machine/classic/transcripts`. Here a group's log is read back from
a real disk, after a real session expired.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.model import ErrorCode, TopicPartition
from odradek.model.names import OFFSETS_TOPIC
from odradek.protocol.api import ApiKey
from odradek.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from odradek.simulation.wire_client import BlockingWireClient
from odradek.testing import eventually
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.long

DEADLINE_S: Final = 60.0
PARTITIONS: Final = 6
PATIENT_MS: Final = 300_000
"""A session that no test outlives."""
COMMITTED: Final = 41
OPTIONS: Final = {
    "group.initial.rebalance.delay.ms": "0",
    "zookeeper.session.timeout.ms": "3000",
    "min.insync.replicas": "2",
}


class Brokers:
    """Three processes of `odradek serve` over one metadata tree. One of them, not the controller, coordinates."""

    def __init__(self, folder: Path, metadata: str) -> None:
        self._brokers = [
            ServedBroker(
                folder / f"broker-{number}",
                metadata=metadata,
                options=OPTIONS,
                arguments=("--broker-id", str(number)),
            )
            for number in range(3)
        ]

    def start(self) -> None:
        for broker in self._brokers:
            broker.launch()
        for broker in self._brokers:
            broker.wait_until_ready()
        eventually(lambda: len(self.metadata().brokers) == len(self._brokers), within_s=DEADLINE_S)
        controller = self.metadata().controller_id
        replicas = [number for number in range(3) if number != controller] + [controller]
        self.create(OFFSETS_TOPIC, [replicas])

    def kill(self) -> None:
        """Kill those that run; none of them may have met an error that it does not know."""
        for broker in self._brokers:
            broker.kill()
            assert "Traceback" not in broker.errors.read_text()

    def running(self) -> str:
        return next(each.bootstrap_servers for each in self._brokers if each.runs)

    def ask(self, api: ApiKey, message: dict[str, Any], version: int) -> Any:
        """Ask the first broker that runs."""
        with BlockingWireClient(self.running()) as client:
            return client.ask(api, message, version)

    def metadata(self) -> Any:
        return self.ask(ApiKey.METADATA, {"topics": []}, 7)

    def controller(self) -> str:
        return self._brokers[self.metadata().controller_id].bootstrap_servers

    def create(self, topic: str, replicas: list[list[int]]) -> None:
        places = [{"partition_index": number, "broker_ids": ids} for number, ids in enumerate(replicas)]
        wanted = {"name": topic, "num_partitions": -1, "replication_factor": -1, "assignments": places, "configs": []}
        with BlockingWireClient(self.controller()) as client:
            answer = client.ask(ApiKey.CREATE_TOPICS, {"topics": [wanted], "timeout": 30_000}, 4)
        assert answer.topics[0].error_code == ErrorCode.none

    def coordinator(self, group: str) -> ServedBroker:
        """The broker that coordinates the group and has loaded it."""

        def found() -> ServedBroker | None:
            answer = self.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [group]}, 4)
            (one,) = answer.coordinators
            broker = self._brokers[one.node_id] if one.error_code == ErrorCode.none else None
            return broker if broker is not None and broker.runs and self._has_loaded(broker, group) else None

        broker = eventually(found, within_s=DEADLINE_S, what=f"a coordinator of {group}")
        assert broker is not None
        return broker

    def state(self, group: str) -> str:
        return str(describe(self.coordinator(group), group).group_state)

    def _has_loaded(self, broker: ServedBroker, group: str) -> bool:
        with suppress(ConnectionError):
            return bool(describe(broker, group).error_code == ErrorCode.none)
        return False


def describe(broker: ServedBroker, group: str) -> Any:
    with BlockingWireClient(broker.bootstrap_servers) as client:
        return client.ask(
            ApiKey.DESCRIBE_GROUPS, {"groups": [group], "include_authorized_operations": False}, 5
        ).groups[0]


class Member:
    """A member on a connection of its own, whose requests the test sends."""

    def __init__(self, brokers: Brokers, group: str) -> None:
        self.member_id = ""
        self.generation = -1
        self.leads = False
        self.owned: tuple[int, ...] = ()
        self.members: list[str] = []
        self._brokers = brokers
        self._group = group
        self._client = BlockingWireClient(brokers.coordinator(group).bootstrap_servers)

    def meet(self) -> None:
        """Connect to the next coordinator."""
        self.close()
        self._client = BlockingWireClient(self._brokers.coordinator(self._group).bootstrap_servers)

    def close(self) -> None:
        self._client.close()

    def send_join(self) -> None:
        metadata = encode_subscription(Subscription(topics=(self._group,)))
        message = {
            "group_id": self._group,
            "session_timeout": PATIENT_MS,
            "rebalance_timeout": PATIENT_MS,
            "member_id": self.member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": metadata}],
        }
        self._client.send(ApiKey.JOIN_GROUP, message, 3)

    def joined(self) -> None:
        """Receive the answer to a join."""
        answer = self._client.answer()
        assert answer.error_code == ErrorCode.none
        assert answer.generation_id >= self.generation
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.leads = answer.leader == answer.member_id
        self.members = [each.member_id for each in answer.members]

    def send_sync(self, assignments: dict[str, bytes] | None = None) -> None:
        given = [{"member_id": each, "assignment": data} for each, data in (assignments or {}).items()]
        self._client.send(ApiKey.SYNC_GROUP, {**self._who, "assignments": given}, 3)

    def synced(self) -> None:
        """Receive the answer to a sync."""
        answer = self._client.answer()
        assert answer.error_code == ErrorCode.none
        self.owned = tuple(place.partition for place in decode_assignment(answer.assignment).partitions)

    def lose_answer(self) -> None:
        """The next answer was sent, and the member does not get it."""
        assert self._client.receive() is not None

    def beat(self) -> ErrorCode:
        return ErrorCode(self._client.ask(ApiKey.HEARTBEAT, self._who, 3).error_code)

    def commit(self, offset: int) -> ErrorCode:
        partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": None}]
        who = {**self._who, "generation_id_or_member_epoch": self.generation}
        message = {**who, "topics": [{"name": self._group, "partitions": partitions}]}
        return ErrorCode(self._client.ask(ApiKey.OFFSET_COMMIT, message, 7).topics[0].partitions[0].error_code)

    def committed(self) -> int:
        topics = [{"name": self._group, "partition_indexes": [0]}]
        answer = self._client.ask(ApiKey.OFFSET_FETCH, {"group_id": self._group, "topics": topics}, 5)
        return int(answer.topics[0].partitions[0].committed_offset)

    @property
    def _who(self) -> dict[str, Any]:
        return {"group_id": self._group, "generation_id": self.generation, "member_id": self.member_id}


class Group:
    """A group, its topic, and the calls that all of its phases need."""

    def __init__(self, brokers: Brokers, name: str) -> None:
        self.brokers = brokers
        self.name = name
        self.members: list[Member] = []
        brokers.create(name, [[0]] * PARTITIONS)

    def member(self) -> Member:
        self.members.append(Member(self.brokers, self.name))
        return self.members[-1]

    def is_preparing(self) -> None:
        eventually(lambda: self.brokers.state(self.name) == "PreparingRebalance", within_s=DEADLINE_S)

    def pair(self) -> tuple[Member, Member]:
        """The leader and another member of generation 2, and an offset that is committed."""
        one = self.member()
        one.send_join()
        one.joined()
        self.sync(one)
        two = self.member()
        self.rebalance(two, one)
        assert (one.leads, one.generation, one.commit(COMMITTED)) == (True, 2, ErrorCode.none)
        return one, two

    def rebalance(self, first: Member, *others: Member) -> None:
        """Have the first join, which starts a rebalance, and then the others; give each its share."""
        first.send_join()
        self.is_preparing()
        for member in others:
            assert member.beat() is ErrorCode.rebalance_in_progress
            member.send_join()
        for member in (first, *others):
            member.joined()
        self.sync(first, *others)

    def sync(self, *members: Member) -> None:
        leader, *rest = sorted(members, key=lambda member: not member.leads)
        leader.send_sync(self.shares(leader.members))
        for member in rest:
            member.send_sync()
        for member in members:
            member.synced()

    def shares(self, member_ids: list[str]) -> dict[str, bytes]:
        return {
            member_id: encode_assignment(
                Assignment(
                    partitions=tuple(
                        TopicPartition(self.name, number) for number in range(place, PARTITIONS, len(member_ids))
                    )
                )
            )
            for place, member_id in enumerate(member_ids)
        }

    def assert_settled(self, generation: int, *members: Member) -> None:
        """Each partition has one owner among these members of one generation, and the offset is there."""
        assert sorted(number for member in members for number in member.owned) == list(range(PARTITIONS))
        assert {member.generation for member in members} == {generation}
        assert {member.beat() for member in members} == {ErrorCode.none}
        assert members[0].committed() == COMMITTED
        assert members[0].commit(COMMITTED) is ErrorCode.none


@pytest.fixture(params=["sqlite", pytest.param("zookeeper", marks=pytest.mark.needs("zookeeper"))])
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    metadata = f"sqlite:///{tmp_path}/metadata.sqlite"
    if request.param == "zookeeper":
        metadata = f"zookeeper://{request.getfixturevalue('zookeeper').address}/failover"
    brokers = Brokers(tmp_path, metadata)
    group = None
    try:
        brokers.start()
        group = Group(brokers, "g")
        yield group
    finally:
        for member in () if group is None else group.members:
            member.close()
        brokers.kill()


def test_the_next_coordinator_completes_what_the_killed_one_began(group: Group) -> None:
    """M6. SPEC 6, phase 4: the assignment is recorded, and no member has received it. Then a member joins."""
    one, two = group.pair()
    one.send_join()
    group.is_preparing()
    two.send_join()
    one.joined()
    two.joined()
    one.send_sync(group.shares(one.members))
    two.send_sync()
    one.lose_answer()
    two.lose_answer()
    group.brokers.coordinator(group.name).kill()
    for member in (two, one):
        member.meet()
        member.send_sync()
        member.synced()
    group.assert_settled(3, one, two)
    one.generation = 2
    assert one.beat() is ErrorCode.illegal_generation
    one.generation = 3
    late = group.member()
    group.rebalance(late, one, two)
    group.assert_settled(4, one, two, late)
