"""Runs a script on three simulated brokers and one group, in virtual time, and records the steps."""

import asyncio
import re
from collections import Counter
from typing import Any, Final

from odradek.broker.groups.machine.classic.classic_group import ClassicGroup
from odradek.broker.groups.machine.consumer.consumer_group import ConsumerGroup
from odradek.broker.lifecycle import Broker
from odradek.clients import Admin, SimpleConsumer
from odradek.lab.case import LabError
from odradek.lab.costs import Generation
from odradek.lab.group_members import CONFIG, GROUP, SESSION_MS, TOPIC, TREE_S, GroupMember, TreeRequest, new_member
from odradek.lab.player.script import BROKERS, MOST_PARTITIONS, PHASES, Action, Click, Script, parse_script
from odradek.lab.player.steps import Finding, Kind, Message, Play, Step, Totals
from odradek.lab.player.words import (
    APIS,
    READER,
    READER_APIS,
    WAITING,
    Said,
    Words,
    leader_words,
    numbers,
    owner_words,
    tree_words,
)
from odradek.lab.timeline import Mark, Span, Timeline, TimelineBuilder
from odradek.model import OdradekError, TopicPartition
from odradek.model.names import OFFSETS_TOPIC
from odradek.protocol.api import ApiKey
from odradek.protocol.consumer_protocol import decode_assignment
from odradek.simulation.virtual.message_tap import MessageTap, TappedRequest
from odradek.simulation.virtual.slow_store import SlowStore
from odradek.simulation.world import World

_COORDINATOR: Final = TopicPartition(OFFSETS_TOPIC, 0)
_ONE_WAY_S: Final = 0.003
"""Enough for an answer to arrive."""
_COMMANDS: Final = (ApiKey.CONSUMER_GROUP_HEARTBEAT,)
"""APIs whose responses tell a member to give up or take partitions."""
_BUSY_LOOK_S: Final = 0.005
_CALM_LOOK_S: Final = 0.2
_BUSY_S: Final = 0.3
"""How long owners are looked at often after a message."""
_CALM_S: Final = 3.0
"""After the topics' creation: followers fetch the new partitions from then on."""
_MESSAGES: Final = 3
_READ_EVERY_S: Final = 1.0
_MOST_STEPS: Final = 1_000
_CONFIG: Final = {
    **CONFIG,
    "offsets.topic.replication.factor": str(BROKERS),
    "replica.fetch.wait.max.ms": "2000",
    "replica.lag.time.max.ms": "5000",
}
_MEMBER: Final = {"fetch_max_wait_ms": 5_000, "enable_auto_commit": False}
_NOTICE_MS: Final = 5_000
"""`metadata.max.age.ms` of members whose topic grows; Kafka's default, 5 minutes, is longer than a play."""
_TREE_MEMBER: Final[dict[str, Any]] = {"fetch_wait_max_ms": 5_000, "auto_commit_enable": False}


def play(generation: Generation, script: Script | str, *, partitions: int = 6, seed: int = 0) -> Play:
    """Play a script with one generation. Raises `LabError` for an invalid script or number of partitions."""
    made = parse_script(script) if isinstance(script, str) else script
    if not 1 <= partitions <= MOST_PARTITIONS:
        raise LabError(f"{partitions} is not a number of partitions to play with: use from 1 to {MOST_PARTITIONS}")
    if made.grows and made.grows[0] <= partitions:
        raise LabError(f"grow-{made.grows[0]} is impossible: the topic has {partitions} partitions from the start")
    player = _Player(generation, made, partitions, seed)
    player.world.run(player.scenario)
    return player.result(seed)


class _Player:
    """One script on one simulated cluster."""

    def __init__(self, generation: Generation, script: Script, partitions: int, seed: int) -> None:
        tap = MessageTap({*APIS, *(READER_APIS if script.has_reader else ())}, self._on_request, self._on_response)
        self.world = World(
            seed,
            _CONFIG,
            brokers=BROKERS,
            noticed_at_once=False,
            tree_s=TREE_S,
            limit_s=600,
            before_start=tap.attach,
        )
        self._generation, self._script = generation, script
        self._partitions = partitions
        self._places = [TopicPartition(TOPIC, number) for number in range(partitions)]
        self._members: dict[int, GroupMember] = {}
        self._gone: set[int] = set()
        """The numbers of members that were to leave or to die."""
        self._tasks: list[asyncio.Task[None]] = []
        self._phase = 0
        """The phase of a failover that is awaited; 0 if none is."""
        self._is_losing_answers = False
        self._began_s: float | None = None
        self._busy_until_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._words = Words()
        self._steps: list[Step] = []
        self._routine: tuple[int, Counter[tuple[str, str]], Message | None] = (0, Counter(), None)
        self._readers = TimelineBuilder()
        self._owners: dict[int, str] = {}
        self._leaders: dict[str, str] = {}
        self._group = ""
        self._generations: list[int] = []
        """The group's generations or epochs, in the order in which its coordinators had them."""
        self._assigned: set[tuple[tuple[int, int], str]] = set()
        """The pairs of (generation, partition) and member in the answers to SyncGroup."""
        self._committed: dict[TopicPartition, int] = {}
        """The highest committed offset that a member had an answer for, by partition."""
        self._findings: tuple[Finding, ...] = ()
        self._requests = 0
        self._tree: Counter[str] = Counter()

    async def scenario(self, world: World) -> None:
        """Prepare the cluster, play the clicks, and end."""
        await asyncio.gather(*(world.start(number) for number in range(BROKERS)))
        async with Admin(world.servers, runtime=world.simulation.runtime("admin")) as admin:
            await admin.create_topic(TOPIC, partitions=len(self._places), replication_factor=BROKERS)
            await admin.list_group_offsets([GROUP])  # creates the coordinator's topic
        if self._script.has_reader:
            async with world.producer("writer") as producer:
                for number in range(_MESSAGES):
                    await producer.send(TOPIC, b"message %d" % number, partition=0)
        if self._script.name:
            self._tasks.append(asyncio.create_task(self._write_again_and_again()))
        await world.pass_time(_CALM_S)
        self._began_s = world.now_s
        self._look(is_first=True)
        for click in self._script.clicks:
            await self._sleep_until(click.at_ms)
            await self._do(click)
        await self._sleep_until(self._script.end_ms)
        self._look()
        self._flush()
        if self._script.name:
            self._findings = await self._check()
        self._began_s = None
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for number in list(world.running):
            await world.kill(number)

    def result(self, seed: int) -> Play:
        """Return the play, after the scenario has ended."""
        end_ms = self._script.end_ms
        self._readers.close(end_ms, gaps_since_ms=0)
        timeline = Timeline(
            title=f"generation {self._generation}",
            start_ms=0,
            end_ms=end_ms,
            spans=self._readers.spans(),
            marks=tuple(
                Mark(from_ms=step.at_ms, to_ms=step.at_ms, text=step.text)
                for step in self._steps
                if step.kind is Kind.CLICK
            ),
        )
        return Play(
            generation=self._generation,
            script=str(self._script),
            partitions=self._partitions,
            seed=seed,
            steps=tuple(self._steps),
            totals=Totals(
                unread_partition_ms=timeline.unowned_partition_ms,
                interrupted_ms=_covered_ms(timeline.gaps),
                requests=self._requests,
                tree_reads=self._tree["reads"],
                tree_writes=self._tree["writes"],
            ),
            timeline=timeline,
            findings=self._findings,
        )

    # ---- clicks -----------------------------------------------------------------------------------------------------

    async def _do(self, click: Click) -> None:
        number, action, loop = click.number, click.action, asyncio.get_running_loop()
        if action is Action.JOIN:
            number = len(self._members) + 1
            self._note(f"member-{number} starts", Kind.CLICK)
            self._tasks.append(loop.create_task(self._start(self._new_member(number, self._generation))))
        elif action is Action.LEAVE:
            self._note(f"member-{number} closes its consumer", Kind.CLICK)
            self._gone.add(number)
            self._tasks.append(asyncio.create_task(self._leave(number)))
        elif action is Action.DIE:
            self._note(f"member-{number} dies: it sends nothing more", Kind.CLICK)
            self._gone.add(number)
            self._members[number].die()
            self._members[number] = _Gone(f"member-{number}")
            if self._generation is Generation.ZOOKEEPER:
                text = f"member-{number}'s session ends in ZooKeeper: its znodes vanish, and all watches fire"
                loop.call_later(SESSION_MS / 1000, self._note, text)
        elif action is Action.BROKER_DIES:
            await self._kill(number, f"broker-{number} dies")
        elif action is Action.BROKER_BACK:
            self._note(f"broker-{number} starts again", Kind.CLICK)
            self._tasks.append(loop.create_task(self._restart(number)))
        elif action in (Action.TREE_AWAY, Action.TREE_BACK):
            is_reachable = action is Action.TREE_BACK
            self._note(
                "ZooKeeper is back" if is_reachable else "ZooKeeper is away: no broker or member reaches it", Kind.CLICK
            )
            self._reach_tree(is_reachable=is_reachable)
        elif action is Action.FAILOVER:
            # A group of generation 3 has neither joins nor SyncGroup, and one of generation 1 has no coordinator.
            self._phase = min(number, 2) if self._generation is Generation.CONSUMER else number
            if self._generation is Generation.ZOOKEEPER:
                await self._fail_over(0)
        elif action is Action.READER:
            self._note("reader starts: a consumer without a group", Kind.CLICK)
            self._tasks.append(loop.create_task(self._read_again_and_again()))
        elif action is Action.GROW:
            self._note(f"the topic grows to {number} partitions", Kind.CLICK)
            new = range(len(self._places), number)
            self._places += [TopicPartition(TOPIC, each) for each in new]
            self._leaders |= {str(each): "" for each in new}
            self._tasks.append(loop.create_task(self._grow(number)))
        elif action is Action.UPGRADE:
            self._tasks.append(loop.create_task(self._upgrade(number)))
        self._look()

    async def _write_again_and_again(self) -> None:
        async with self.world.producer("writer") as producer:
            while True:
                for place in self._places:
                    await producer.send(*place[:1], b"message", partition=place.partition)
                await asyncio.sleep(_READ_EVERY_S)

    async def _check(self) -> tuple[Finding, ...]:
        owners = Counter(number for member in self._members.values() for number in member.owned)
        wrong = [place.partition for place in self._places if owners[place.partition] != 1]
        count = f"each of {len(self._places)} partitions has one owner"
        found = [(count, f"partitions without one owner: {numbers(wrong)}", not wrong)]
        if self._generation is not Generation.ZOOKEEPER:
            committed = dict(self._committed)
            async with Admin(self.world.servers, runtime=self.world.simulation.runtime("admin")) as admin:
                stored = (await admin.list_group_offsets([GROUP]))[GROUP]
            kept = {} if isinstance(stored, OdradekError) else stored
            lost = [place for place, offset in committed.items() if place not in kept or kept[place].offset < offset]
            answered = f"no commit is lost: the last answered ones of {len(committed)} partitions are there"
            found.append((answered, f"commits are lost: {', '.join(map(str, lost))}", bool(committed) and not lost))
            shown = ", ".join(map(str, self._generations))
            is_new = self._generations == sorted(set(self._generations)) and len(self._assigned) == len(
                {key for key, _ in self._assigned}
            )
            found.append((f"no generation began twice: {shown}", f"a generation began twice: {shown}", is_new))
        return tuple(Finding(text=good if holds else bad, holds=holds) for good, bad, holds in found)

    async def _read_again_and_again(self) -> None:
        runtime = self.world.simulation.runtime(READER)
        async with SimpleConsumer(self.world.servers, runtime=runtime, client_id=READER) as reader:
            while True:
                await reader.fetch((TOPIC, 0), 0)
                await asyncio.sleep(_READ_EVERY_S)

    async def _grow(self, partitions: int) -> None:
        try:
            async with Admin(self.world.servers, runtime=self.world.simulation.runtime("admin")) as admin:
                await admin.create_partitions(TOPIC, partitions)
        except OdradekError as error:
            self._note(f"the topic cannot grow: {error}", Kind.CLICK)

    async def _upgrade(self, number: int) -> None:
        """Close a member, and start it again with the protocol of generation 3; in ZooKeeper, with its own."""
        is_tree = self._generation is Generation.ZOOKEEPER
        what = ": ZooKeeper has no other protocol" if is_tree else " with group.protocol=consumer"
        self._note(f"member-{number} starts again{what}", Kind.CLICK)
        await self._leave(number)
        if number not in self._gone:
            await self._start(self._new_member(number, self._generation if is_tree else Generation.CONSUMER))

    def _new_member(self, number: int, generation: Generation) -> GroupMember:
        name = f"member-{number}"
        settings = _TREE_MEMBER if generation is Generation.ZOOKEEPER else {"client_id": name, **_MEMBER}
        if self._script.name and settings is not _TREE_MEMBER:
            settings |= {"enable_auto_commit": True, "auto_commit_interval_ms": 1_000}
        if self._script.grows and settings is not _TREE_MEMBER:
            settings["metadata_max_age_ms"] = _NOTICE_MS
        self._members[number] = new_member(self.world, generation, name, self._on_tree, **settings)
        return self._members[number]

    async def _start(self, member: GroupMember) -> None:
        try:
            await member.start()
        except OdradekError as error:
            self._note(f"{member.name} gives up: {error}", Kind.CLICK)

    async def _leave(self, number: int) -> None:
        member = self._members[number]
        try:
            await member.leave()
        except OdradekError as error:
            self._note(f"{member.name} could not leave the group: {error}", Kind.CLICK)
        self._members[number] = _Gone(member.name)

    async def _kill(self, number: int, text: str) -> None:
        self._note(text, Kind.CLICK)
        await self.world.kill(number)
        self._look()

    async def _restart(self, number: int) -> None:
        try:
            await self.world.start(number)
        except OdradekError as error:
            self._note(f"broker-{number} cannot start: {error}", Kind.CLICK)

    def _reach_tree(self, *, is_reachable: bool) -> None:
        for number in self.world.running:
            store = self.world.store(number)
            assert isinstance(store, SlowStore)
            if is_reachable:
                store.reconnect()
            else:
                store.disconnect()
        for member in self._members.values():
            member.reach_tree(is_reachable=is_reachable)

    async def _sleep_until(self, at_ms: int) -> None:
        assert self._began_s is not None
        await asyncio.sleep(max(0.0, self._began_s + at_ms / 1000 - self.world.now_s))

    # ---- failover ---------------------------------------------------------------------------------------------------

    def _is_now(self, phase: int, *, in_s: float = 0.0) -> bool:
        """Return whether the coordinator is to die in this phase; if so, let it die `in_s` seconds from now."""
        if self._phase != phase:
            return False
        self._phase, self._is_losing_answers = 0, phase != 1
        self._tasks.append(asyncio.get_running_loop().create_task(self._fail_over(phase, in_s)))
        return True

    async def _fail_over(self, phase: int, in_s: float = 0.0) -> None:
        await asyncio.sleep(in_s)
        number = next(number for number, each in self.world.running.items() if _leads(each, _COORDINATOR))
        why = f", the coordinator, dies: phase {phase}, {PHASES[phase]}" if phase else " dies"
        await self._kill(number, f"broker-{number}{why}")
        self._is_losing_answers = False

    def _awaits_death(self, request: TappedRequest) -> None:
        """Let the coordinator die if the awaited phase begins with this request."""
        joins = request.api is ApiKey.JOIN_GROUP and bool(request.message.member_id)
        joins |= request.api is ApiKey.CONSUMER_GROUP_HEARTBEAT and request.message.member_epoch == 0
        joins |= request.api is ApiKey.LEAVE_GROUP
        if joins and self._group.startswith("Stable"):
            self._is_now(1)
        elif request.api is ApiKey.JOIN_GROUP and self._group.startswith("PreparingRebalance"):
            self._is_now(3)

    # ---- what happens -----------------------------------------------------------------------------------------------

    def _on_request(self, request: TappedRequest) -> None:
        if self._began_s is None or not _is_of_the_group(request):
            return
        self._requests += 1
        self._awaits_death(request)
        said = self._words.request(request, self._host(request.broker))
        if request.api in WAITING:
            self._say(said)

    def _on_response(self, request: TappedRequest, response: Any) -> bool:
        if self._began_s is not None and request.client_id == READER:
            self._say(self._words.reader(request, response, self._host(request.broker)))
        if self._began_s is None or not _is_of_the_group(request):
            return True
        said = self._words.response(request, response, self._host(request.broker))
        error = said.message.error
        if request.api is ApiKey.SYNC_GROUP and not error:
            self._is_now(4)
        if self._is_losing_answers:
            return False
        self._say(said)
        if request.api is ApiKey.OFFSET_COMMIT and not error:
            for topic in request.message.topics:
                for each in topic.partitions:
                    place = TopicPartition(topic.name, each.partition_index)
                    self._committed[place] = max(each.committed_offset, self._committed.get(place, 0))
        elif request.api is ApiKey.SYNC_GROUP and not error:
            for place in decode_assignment(response.assignment).partitions:
                self._assigned.add(((request.message.generation_id, place.partition), request.client_id))
        if error == "REBALANCE_IN_PROGRESS" or (request.api in _COMMANDS and not said.is_routine):
            self._is_now(2, in_s=_ONE_WAY_S)
        if request.api is ApiKey.SYNC_GROUP and not error:
            self._is_now(5, in_s=_ONE_WAY_S)
        return True

    def _on_tree(self, request: TreeRequest) -> None:
        if self._began_s is None:
            return
        self._tree["reads"] += len(request.reads)
        self._tree["writes"] += len(request.operations)
        self._say(tree_words(request))

    def _host(self, broker: Broker) -> str:
        return self.world.hosts[broker.config.broker_id]

    def _say(self, said: Said) -> None:
        self._look()
        if not said.is_routine:
            self._look_often()
            self._add(Kind.MESSAGE, said.text, said.message)
            return
        began_ms, counts, first = self._routine
        member = said.message.target if said.message.is_response else said.message.source
        counts[said.message.api + f" ({said.message.error})" * bool(said.message.error), member] += 1
        self._routine = (began_ms if first else self._now_ms(), counts, first or said.message)

    def _note(self, text: str, kind: Kind = Kind.GROUP) -> None:
        if self._began_s is not None:
            self._look()
            self._look_often()
            self._add(kind, text)

    def _look_often(self) -> None:
        self._busy_until_s = self.world.now_s + _BUSY_S
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(_BUSY_LOOK_S, self._look_again)

    def _look_again(self) -> None:
        self._look()
        wait_s = _BUSY_LOOK_S if self.world.now_s < self._busy_until_s else _CALM_LOOK_S
        self._timer = asyncio.get_running_loop().call_later(wait_s, self._look_again)

    def _look(self, *, is_first: bool = False) -> None:
        """Note changes of leaders, of the group at its coordinator, and of owners."""
        if self._began_s is None:
            return
        before = self._leaders, self._group, self._owners
        owners = {number: member.name for member in self._members.values() for number in sorted(member.owned)}
        after = self._leaders_now(), self._group_now() or self._group, owners
        if is_first or after != before:
            self._flush()
        self._leaders, self._group, self._owners = after
        read = {self._places[number]: owner for number, owner in owners.items() if self._leaders[str(number)]}
        self._readers.note_all(read, self._now_ms())
        if is_first:
            return
        if after[0] != before[0]:
            self._add(Kind.LEADERS, leader_words(before[0], after[0]))
        if after[1] != before[1]:
            self._add(Kind.GROUP, f"the group is {self._group}")
            number = int(re.findall(r"(?:generation|epoch) (\d+)", self._group)[0])
            self._generations += [number] if self._generations[-1:] != [number] else []
        if after[2] != before[2]:
            self._add(Kind.OWNERS, owner_words(before[2], owners))

    def _leaders_now(self) -> dict[str, str]:
        """Return the broker that leads each partition, and the coordinator; empty texts where there is none."""
        places = {**{str(place.partition): place for place in self._places}, "coordinator": _COORDINATOR}
        hosts = {self.world.hosts[number]: broker for number, broker in self.world.running.items()}
        return {
            name: next((host for host, broker in hosts.items() if _leads(broker, place)), "")
            for name, place in places.items()
        }

    def _group_now(self) -> str:
        """Return the group's state and generation at its coordinator; empty if there is none."""
        for broker in self.world.running.values():
            machine = broker.groups.machine(GROUP) if _leads(broker, _COORDINATOR) else None
            group = None if machine is None else machine.groups.by_id.get(GROUP)
            if isinstance(group, ClassicGroup):
                cause = f": {group.trace.cause.text}" if group.trace and group.state == "PreparingRebalance" else ""
                return f"{group.state}, generation {group.generation}" + self._words.named(cause)
            if isinstance(group, ConsumerGroup):
                return f"{group.state}, epoch {group.epoch}"
        return ""

    # ---- steps ------------------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        assert self._began_s is not None
        return round((self.world.now_s - self._began_s) * 1000)

    def _add(self, kind: Kind, text: str, message: Message | None = None) -> None:
        self._flush()
        self._append(kind, text, message, self._now_ms())

    def _flush(self) -> None:
        """Add the step of folded messages, if there are any."""
        began_ms, counts, first = self._routine
        if first is not None:
            self._routine = (0, Counter(), None)
            by_api: dict[str, Counter[str]] = {}
            for (api, member), count in sorted(counts.items()):
                by_api.setdefault(api, Counter())[member] += count
            shown = [
                api + f" ×{some.total()}" * (some.total() > 1) + f" by {min(some)}" * (len(some) == 1)
                for api, some in by_api.items()
            ]
            self._append(Kind.ROUTINE, f"meanwhile: {', '.join(shown)}", first, began_ms)

    def _append(self, kind: Kind, text: str, message: Message | None, at_ms: int) -> None:
        if len(self._steps) == _MOST_STEPS:
            text, message = "more happens than is shown", None
        elif len(self._steps) > _MOST_STEPS:
            return
        unread = tuple(
            place.partition
            for place in self._places
            if place.partition not in self._owners or not self._leaders[str(place.partition)]
        )
        self._steps.append(
            Step(at_ms=at_ms, kind=kind, text=text, message=message, owners=dict(self._owners), unread=unread)
        )


class _Gone:
    """A member that has left or died: it owns nothing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.owned: set[int] = set()

    async def start(self) -> None: ...

    async def leave(self) -> None: ...

    def die(self) -> None: ...

    def reach_tree(self, *, is_reachable: bool) -> None: ...


def _is_of_the_group(request: TappedRequest) -> bool:
    return request.api in APIS and request.client_id.startswith("member-")


def _leads(broker: Broker, place: TopicPartition) -> bool:
    return broker.partitions.leader_or_none(*place) is not None


def _covered_ms(gaps: tuple[Span, ...]) -> int:
    """Return how long at least one of the gaps, sorted by their start, is open."""
    total, until_ms = 0, 0
    for gap in gaps:
        total += max(0, gap.to_ms - max(gap.from_ms, until_ms))
        until_ms = max(until_ms, gap.to_ms)
    return total
