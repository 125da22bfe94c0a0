"""The invariants of the consumer protocol in groups with members of both protocols, and live conversions (M7).

`ODRADEK_SEEDS=1000 pytest tests/broker/groups/machine/both_protocols/test_mixed_invariants.py` tries so many.
"""

from collections.abc import Callable
from typing import Any, Final

import pytest

from odradek.broker.groups.machine.both_protocols import migration
from odradek.broker.groups.machine.consumer import group_update
from odradek.broker.groups.machine.consumer.consumer_group import ConsumerGroupState
from odradek.broker.groups.machine.consumer.member import LEAVING_STATIC_EPOCH
from tests.broker.groups.machine.both_protocols.classic_client import ClassicClient
from tests.broker.groups.machine.consumer.protocol_world import GROUP, Coordinator, Member, settings
from tests.broker.groups.machine.consumer.test_model_invariants import History, check_group, leaving, replayed
from tests.world.sampling import seeds

pytestmark = pytest.mark.long

_SEEDS: Final = len(seeds(50))
Client = Member | ClassicClient


class MixedHistory(History):
    """The events of `History`, with members of both protocols that come and go."""

    def __init__(self, seed: int, *, policy: str = "bidirectional") -> None:
        super().__init__(seed)
        names = self.entropy.choice((["range"], ["uniform"]))
        self.at = Coordinator(self.counts, consumer_settings=settings(*names, migration_policy=policy))
        self.at.commits_at_once = False
        self.assignor = self.entropy.choice(("range", "cooperative-sticky"))
        self.members: list[Any] = []
        self.conversions = 0
        self._was_classic: bool | None = None

    def join(self) -> None:
        if len(self.members) >= 5:
            return
        if self.entropy.random() < 0.5:
            super().join()
        else:
            instance_id = f"i{next(self.names)}" if self.entropy.random() < 0.3 else None
            self.members.append(self.classic(self.topics(), instance_id))

    def classic(self, topics: Any, instance_id: str | None) -> ClassicClient:
        return ClassicClient(f"c{next(self.names)}", topics, assignor=self.assignor, instance_id=instance_id)

    def heartbeat(self) -> None:
        member = self.some_member()
        if isinstance(member, ClassicClient):
            member.step(self.at)
        elif member is not None:
            to = object()
            self.waiting.append((member, to))
            self.at.send(member.request(), to)

    def collect(self) -> None:
        super().collect()
        for member in self.members:
            if isinstance(member, ClassicClient):
                member.collect(self.at)

    def leave(self) -> None:
        member: Any = self.some_member()
        if isinstance(member, ClassicClient):
            self.members.remove(member)
            member.leave(self.at)
        elif member is not None:
            self.members.remove(member)
            self.at.send(leaving(member, -1), object())

    def vanish(self) -> None:
        """Let a client die, or return as another process with its instance id, perhaps with the other protocol."""
        member: Any = self.some_member()
        if member is None:
            return
        self.members.remove(member)
        instance_id = member.more.get("instance_id")
        if instance_id is None:
            return
        if isinstance(member, Member):
            self.at.send(leaving(member, LEAVING_STATIC_EPOCH), object())
        if self.entropy.random() < 0.5:
            self.members.append(self.classic(member.topics or ("a", "b"), instance_id))
        else:
            self.members.append(Member(f"m{next(self.names)}", member.topics or ("a", "b"), instance_id=instance_id))

    def subscribe(self) -> None:
        member = self.some_member()
        if isinstance(member, ClassicClient):
            member.topics, member.is_joined = tuple(self.topics()), False
        elif member is not None and not member.regex:
            member.topics = tuple(self.topics())

    # -- what must hold ------------------------------------------------------------------------------------------------

    def check(self) -> None:
        groups = self.at.log.machine.groups
        assert groups.size_bytes == sum(each.size_bytes for each in groups.by_id.values())
        is_classic = self.at.log.group(GROUP) is not None
        self.conversions += self._was_classic is not None and is_classic != self._was_classic
        self._was_classic = is_classic
        group = self.group
        if group is None:
            return
        check_group(group)
        for member in self.members:
            is_client = isinstance(member, ClassicClient)
            known = group.members.get(member.member_id if is_client else member.name)
            if known is None or known.is_classic != is_client or not 0 < member.epoch <= known.epoch:
                continue
            for topic, numbers in member.owned.items():
                if is_client and topic not in self.at.log.image.topic_names:
                    continue  # classic clients know topics by name, so a topic that was made again is the same to them
                held = known.assigned.get(topic, frozenset()) | known.revoking.get(topic, frozenset())
                assert numbers <= held, f"{member.name} owns {sorted(numbers - held)} of {topic} without a claim"

    def heal(self) -> None:
        self.at.commits_at_once = True
        self.at.log.commit()
        self.collect()
        self.waiting.clear()
        self.members = [each for each in self.members if not (isinstance(each, ClassicClient) and each.is_over)]
        if not self.members:
            self.members.append(Member("last", ("a", "b", "c")))
        for _ in range(60):
            self.at.wait(1_000)
            for member in self.members:
                member.heartbeat(self.at)
                member.revoke()
            self.collect()
        over = [each.errors for each in self.members if isinstance(each, ClassicClient) and each.is_over]
        assert not over, f"clients ended with {over}"
        group = self.group
        if group is None or not group.members:
            assert not any(isinstance(each, Member) for each in self.members)
            return  # the leader of a classic group assigns; its balance is another test's
        assert group.state is ConsumerGroupState.STABLE
        self.check_shares()
        assert set(replayed(self.at).members) == set(group.members)


def run(block: int, monkeypatch: pytest.MonkeyPatch, history: Callable[[int], MixedHistory]) -> int:
    if block % 2:  # the targets of these small groups wait as those of large ones do
        monkeypatch.setattr(group_update, "_ENTRIES_PER_MS", 0.001)
    conversions = 0
    for seed in range(block * _SEEDS // 10, (block + 1) * _SEEDS // 10):
        try:
            found = history(seed)
            found.run()
            conversions += found.conversions
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
    return conversions


@pytest.mark.parametrize("block", range(10))
def test_invariants_hold_with_members_of_both_protocols(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(block, monkeypatch, MixedHistory) > 0, "no group changed its protocol"


@pytest.mark.parametrize("fault", ["forgets what members own", "frees what members are still giving up"])
def test_a_planted_fault_of_a_conversion_is_found(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "forgets what members own":
        monkeypatch.setattr(migration, "by_id", lambda *_: {})
    else:
        monkeypatch.setattr(migration, "still_listed", lambda *_: ())
    with pytest.raises(AssertionError):
        for seed in range(400):
            MixedHistory(seed).run()
