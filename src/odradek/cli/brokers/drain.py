"""`odradek brokers drain`: move all replicas of a broker to other brokers, some partitions at a time."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Set
from typing import Final

import click
from msgspec import Struct, field

from odradek.broker.controller.machine.reassignment_proposals import plan_drain
from odradek.cli.checks import COUNT, ID
from odradek.cli.common import cluster_options, print_json, print_table, progress, say, table_options, with_admin
from odradek.cli.partition_lists import Assignment, ids
from odradek.clients import Admin
from odradek.clients.admin.results import RefusedPartitionsError
from odradek.clients.metadata import NO_LEADER
from odradek.model import ErrorCode, KafkaError, TopicPartition, first_names

_POLL_S: Final = 0.5
_MOST_LEADERLESS_CHECKS: Final = 60
"""The drain fails after this number of checks, half a minute, in which no remaining partition has a leader."""
_MOST_LAGGING_CHECKS: Final = 20
"""The drain fails after this number of checks, ten seconds, in which a move is neither in progress nor done."""
"""Limit of partitions in one message."""


@click.command()
@click.argument("broker_id", type=ID, metavar="ID")
@click.option("--at-once", type=COUNT, default=20, show_default=True, help="Limit of partitions in motion.")
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@table_options
@cluster_options
def drain(*, broker_id: int, at_once: int, dry_run: bool, as_json: bool) -> None:
    """Move all replicas off the broker ID, which may be dead, so that it can be removed.

    Each replica goes to another broker, if possible on a rack that its partition does not use yet. If the command is
    interrupted, moves in progress go on, and the next run continues with the rest. Topics created meanwhile may still
    be placed on the broker, until it is stopped and `odradek brokers unregister` removes it.
    """

    async def work(client: Admin) -> None:
        draining = _Draining(client, broker_id, at_once=at_once, as_json=as_json)
        await (draining.show() if dry_run else draining.drain())

    with_admin(work)


class _Draining(Struct):
    """One run. `begun` has the moves requested so far, because metadata may lag behind.

    `lagging` counts, for each of these, the checks since it ended, in which the broker still has the replica.
    """

    client: Admin
    broker_id: int
    at_once: int
    as_json: bool
    begun: dict[TopicPartition, tuple[int, ...]] = field(default_factory=dict)
    lagging: Counter[TopicPartition] = field(default_factory=Counter)

    async def show(self) -> None:
        found = await self._look()
        for key, target in found.targets.items():
            if self.as_json:
                self._print(key, found.assigned[key], target, "planned")
        if not self.as_json:
            rows = [(*key, ids(found.assigned[key]), ids(target)) for key, target in found.targets.items()]
            print_table(("TOPIC", "PARTITION", "FROM", "TO"), rows)

    async def drain(self) -> None:
        """Move all replicas. Raises `KafkaError` if a partition can't be moved."""
        found = await self._look()
        total = len(found.targets) + len(found.moving)
        if not self.as_json and total:
            say(f"{total} partitions move off broker {self.broker_id}", is_remark=True)
        patience = _MOST_LEADERLESS_CHECKS
        with progress(f"drain {self.broker_id}", total, unit="partitions", wanted=not self.as_json) as advance:
            while found.targets or found.moving:
                patience = (
                    _MOST_LEADERLESS_CHECKS
                    if found.leaderless < found.targets.keys() | found.moving.keys()
                    else patience - 1
                )
                if not patience:
                    what = first_names(sorted(found.leaderless))
                    message = f"{what}: nobody leads, so nobody can copy the records; start a broker that has them"
                    raise KafkaError(ErrorCode.leader_not_available, message)
                started = await self._begin(found)
                await asyncio.sleep(_POLL_S)
                before = found.moving.keys() | started
                found = await self._look()
                gone = before - found.moving.keys() - found.targets.keys()
                advance(len(gone))
                if self.as_json:
                    for key in sorted(gone):
                        self._print(key, None, self.begun.get(key), "moved")
        if self.as_json:
            print_json({"broker_id": self.broker_id, "replica_count": 0})
        else:
            say(f"broker {self.broker_id} has no replicas")

    async def _begin(self, found: "_Replicas") -> set[TopicPartition]:
        """Request moves until `at_once` are in progress; return the partitions of the new ones."""
        room = max(self.at_once - len(found.moving), 0)
        led = [(key, target) for key, target in found.targets.items() if key not in found.leaderless]
        targets = dict(led[:room])
        if not targets:
            return set()
        refused: Mapping[TopicPartition, KafkaError] = {}
        try:
            await self.client.alter_partition_reassignments(targets)
        except RefusedPartitionsError as error:
            # The topic may have been deleted after its metadata was read.
            refused = error.errors
            lasting = {key: e for key, e in refused.items() if e.code != ErrorCode.unknown_topic_or_partition}
            if lasting:
                raise RefusedPartitionsError(lasting) from None
        started = targets.keys() - refused.keys()
        for key in sorted(started):
            self.begun[key] = targets[key]
            if self.as_json:
                self._print(key, found.assigned[key], targets[key], "moving")
        return started

    async def _look(self) -> "_Replicas":
        """Return the replicas and the moves to make. Raises `KafkaError` if a partition can't be moved."""
        client = self.client
        cluster = await client.describe_cluster()
        # Reassignments are read first, so that one that ends in between appears as done, not as never begun.
        moving = await client.list_partition_reassignments()
        topics = await client.list_topics(include_internal=True)
        described = {
            TopicPartition(topic.name, number): each for topic in topics for number, each in topic.partitions.items()
        }
        racks = {broker.broker_id: broker.rack for broker in cluster.brokers}
        has_any = bool(self.begun) or any(self.broker_id in each.replicas for each in described.values())
        if self.broker_id not in racks and not has_any:
            there = ", ".join(map(str, racks))
            message = f"broker {self.broker_id} is not available; live brokers: {there}"
            raise KafkaError(ErrorCode.broker_not_available, message)
        assigned = {
            key: moving[key].target if key in moving else self.begun.get(key, each.replicas)
            for key, each in described.items()
        }
        plan = plan_drain(self.broker_id, assigned, racks)
        if plan.stuck:
            message = f"no other broker can take a replica of {first_names(plan.stuck)}: start one, or remove a replica"
            raise KafkaError(ErrorCode.invalid_replica_assignment, message)
        going = {
            key: each.target
            for key, each in moving.items()
            if self.broker_id in each.replicas and self.broker_id not in each.target
        }
        lagging = {
            key: target
            for key, target in self.begun.items()
            if key not in moving and key in described and self.broker_id in described[key].replicas
        }
        self.lagging = Counter({key: self.lagging[key] + 1 for key in lagging})
        if cancelled := [key for key, checks in self.lagging.items() if checks >= _MOST_LAGGING_CHECKS]:
            message = f"{first_names(sorted(cancelled))}: the move was cancelled; run the command again"
            raise KafkaError(ErrorCode.no_reassignment_in_progress, message)
        going |= lagging
        leaderless = {key for key in (*plan.targets, *going) if key in described and described[key].leader == NO_LEADER}
        return _Replicas(assigned=assigned, targets=plan.targets, moving=going, leaderless=leaderless)

    def _print(
        self, key: TopicPartition, before: tuple[int, ...] | None, target: tuple[int, ...] | None, state: str
    ) -> None:
        where = {"replicas": before, "target_replicas": target}
        print_json({"topic": key.topic, "partition": key.partition, **where, "state": state})


class _Replicas(Struct, frozen=True, kw_only=True):
    """The replicas after all reassignments in progress, the moves to make, and those in progress off the broker.

    `leaderless` has the partitions of both kinds of moves without a leader, which can't move now.
    """

    assigned: Assignment
    targets: Assignment
    moving: Assignment
    leaderless: Set[TopicPartition]
