"""Planted faults, one at a time, which the workloads of logins, two-phase commit and groups find within a few seeds."""

from collections.abc import Mapping
from typing import Any, Final

import pytest
from msgspec.structs import replace

from odradek.broker.coordinators.coordinator_loader import CoordinatorLoader
from odradek.broker.groups.machine.classic.classic_group import ClassicGroup
from odradek.broker.groups.machine.consumer import group_update
from odradek.broker.groups.machine.consumer.consumer_group import ConsumerGroup
from odradek.broker.groups.machine.group_coordinator_machine import GroupCoordinatorMachine
from odradek.broker.security.scram_users import ScramUsers
from odradek.broker.security.session_authentication import SessionAuthentication
from odradek.broker.transactions.machine.transaction_machine import TransactionMachine
from odradek.clients.consumer.membership.classic_membership_manager import ClassicMembershipManager
from odradek.clients.consumer.membership.consumer_membership_manager import ConsumerMembershipManager
from odradek.clients.group_stream import Batch, ConsumerMember, GroupStream
from odradek.clients.zookeeper_consumer.group_tree import GroupTree
from odradek.metadata import paths
from odradek.metadata.acl_nodes import AclNodes
from odradek.metadata.store import SetData
from odradek.model import ErrorCode
from odradek.security import AclAuthorizer, AclOperation
from odradek.security.acl_authorizer import Decision
from odradek.simulation.seed_run import SeedPlan
from tests.simulation.planting import Plant, assert_found, replaces

pytestmark = pytest.mark.long


def removed_acls_are_kept(patch: pytest.MonkeyPatch) -> None:
    update = AclAuthorizer.update
    patch.setattr(AclAuthorizer, "update", lambda known, acls: update(known, {**(known._acls or {}), **(acls or {})}))


@replaces(AclNodes, "_changed")
async def changes_of_acls_are_missed(changed: Any, nodes: Any, *rest: Any) -> Any:
    patterns = await changed(nodes, *rest)
    return patterns and [each for each in patterns if each not in nodes._known]


def one_more_fetch_is_allowed(patch: pytest.MonkeyPatch) -> None:
    """By each broker, after an ACL was removed."""
    decide, allowed = AclAuthorizer.decide, dict[Any, bool]()

    def forgive(authorizer: Any, principal: Any, host: str, action: Any) -> Decision:
        decision, key = decide(authorizer, principal, host, action), (authorizer, str(principal), action)
        before, allowed[key] = allowed.get(key, False), decision.is_allowed
        if before and not decision.is_allowed and action[0] is AclOperation.READ:
            authorizer.version += 1  # so that no session remembers the decision
            return decision._replace(is_allowed=True)
        return decision

    patch.setattr(AclAuthorizer, "decide", forgive)


@replaces(AclAuthorizer, "decide")
def everybody_may_write(decide: Any, authorizer: Any, principal: Any, host: str, action: Any) -> Decision:
    decision = decide(authorizer, principal, host, action)
    return decision._replace(is_allowed=decision.is_allowed or action[0] is AclOperation.WRITE)


def requests_are_served_without_a_login(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SessionAuthentication, "serves", lambda *_: True)


def former_passwords_are_accepted(patch: pytest.MonkeyPatch) -> None:
    credential, known = ScramUsers.credential, dict[str, Any]()

    def first(users: ScramUsers, mechanism: str, user: str) -> Any:
        return known.setdefault(user, credential(users, mechanism, user))

    patch.setattr(ScramUsers, "credential", first)


@replaces(TransactionMachine, "_initialise")
def a_new_producer_aborts_the_prepared_transaction(
    initialise: Any, machine: Any, key: str, request: Any, *rest: Any
) -> Any:
    return initialise(machine, key, replace(request, keep_prepared=False), *rest)


def prepared_transactions_time_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("odradek.broker.transactions.machine.transaction_machine.NO_TIMEOUT_MS", 300)


def epochs_never_end(patch: pytest.MonkeyPatch) -> None:
    for module in ("transaction", "transaction_machine"):
        patch.setattr(f"odradek.broker.transactions.machine.{module}.is_exhausted", lambda epoch: False)


@replaces(GroupTree, "claim")
async def claims_are_not_made(_: Any, tree: GroupTree, wanted: object) -> bool:
    return True


@replaces(GroupTree, "claim")
async def a_claim_is_taken_from_its_owner(claim: Any, tree: GroupTree, wanted: Any) -> bool:
    if not await claim(tree, wanted):
        for place, thread in wanted.items():
            path = paths.consumer_owner(tree._group, place)
            if node := await tree._store.get(path):
                await tree._store.multi([SetData(path=path, data=thread.encode(), version=node.version)])
    return True


def tombstones_of_groups_are_not_loaded(patch: pytest.MonkeyPatch) -> None:
    load, apply, is_loading = CoordinatorLoader._apply, GroupCoordinatorMachine.apply, [False]

    def begin(*given: Any) -> None:
        is_loading[0] = True
        load(*given)
        is_loading[0] = False

    def skip(machine: Any, record: Any, *rest: Any) -> None:
        if not is_loading[0] or getattr(record, "value", "") is not None:
            apply(machine, record, *rest)

    patch.setattr(CoordinatorLoader, "_apply", begin)
    patch.setattr(GroupCoordinatorMachine, "apply", skip)


def max_poll_interval_is_ignored(patch: pytest.MonkeyPatch) -> None:
    for manager in (ClassicMembershipManager, ConsumerMembershipManager):
        patch.setattr(manager, "poll_finished", lambda *_: None)


def epochs_of_heartbeats_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(group_update, "check_epoch", lambda *_: None)


@replaces(ConsumerGroup, "_validate_member_epoch")
def epochs_of_commits_are_not_checked(validate: Any, *given: Any) -> ErrorCode:
    error = validate(*given)
    return ErrorCode.none if error is ErrorCode.stale_member_epoch else error


def partitions_are_given_before_they_are_revoked(patch: pytest.MonkeyPatch) -> None:
    reconcile = group_update.reconcile
    patch.setattr(group_update, "reconcile", lambda *given: reconcile(*given[:3], lambda *_: True))


def static_members_are_fenced_instead_of_their_predecessors(patch: pytest.MonkeyPatch) -> None:
    validate = ClassicGroup.validate_member_id
    swapped = {ErrorCode.none: ErrorCode.fenced_instance_id, ErrorCode.fenced_instance_id: ErrorCode.none}

    def swap(group: Any, member_id: str, instance_id: str | None) -> ErrorCode:
        error = validate(group, member_id, instance_id)
        return error if instance_id is None else swapped.get(error, error)

    patch.setattr(ClassicGroup, "validate_member_id", swap)


@replaces(ClassicGroup, "validate_commit")
def former_ids_of_static_members_are_valid(validate: Any, *arguments: Any) -> ErrorCode:
    error = validate(*arguments)
    return ErrorCode.none if error is ErrorCode.fenced_instance_id else error


@replaces(GroupStream, "_finish")
async def restarts_ignore_the_checkpoint(finish: Any, stream: GroupStream, last: Batch | None) -> None:
    first = vars(stream).setdefault("first", last)
    await finish(stream, None if last is first else last)


@replaces(GroupStream, "_plan")
async def batches_are_committed_before_they_are_read(plan: Any, stream: GroupStream, *rest: Any) -> Batch | None:
    batch = await plan(stream, *rest)
    if batch is not None:
        await stream._member.commit(batch.end)
    return batch


@replaces(ConsumerMember, "poll")
async def a_partition_that_comes_back_is_read_from_where_the_query_was(
    poll: Any, member: ConsumerMember, *rest: Any
) -> Any:
    owned, _ = await poll(member, *rest)
    return owned, ()


@replaces(GroupStream, "_behind")
async def queries_with_a_target_do_not_wait_for_other_members(
    _: Any, stream: GroupStream, target: object
) -> dict[Any, int]:
    return {}


FOUND_WITHIN: Final = 12
"""Seeds in which each planted fault is found."""
PLANS: Final[Mapping[Plant, SeedPlan]] = {
    removed_acls_are_kept: SeedPlan(seed=0, workloads=("security",), faults=("revoke_acls",)),
    changes_of_acls_are_missed: SeedPlan(seed=0, workloads=("security",), faults=("revoke_acls",)),
    one_more_fetch_is_allowed: SeedPlan(seed=0, workloads=("security",), faults=("revoke_acls",)),
    everybody_may_write: SeedPlan(seed=0, workloads=("security",), faults=("blink",), count=1, virtual_s=10.0),
    requests_are_served_without_a_login: SeedPlan(seed=0, workloads=("security",), faults=("blink",)),
    former_passwords_are_accepted: SeedPlan(seed=0, workloads=("security",), faults=("rotate_password",)),
    a_new_producer_aborts_the_prepared_transaction: SeedPlan(
        seed=1, workloads=("two-phase",), faults=("blink",), count=2, virtual_s=20.0
    ),
    prepared_transactions_time_out: SeedPlan(
        seed=0, workloads=("two-phase",), faults=("blink",), count=2, virtual_s=20.0
    ),
    epochs_never_end: SeedPlan(seed=5, workloads=("two-phase",), faults=("blink",)),
    claims_are_not_made: SeedPlan(seed=0, workloads=("zookeeper-group",), faults=("blink",), count=1, virtual_s=5.0),
    former_ids_of_static_members_are_valid: SeedPlan(seed=8, workloads=("classic-group",), faults=("blink",)),
    restarts_ignore_the_checkpoint: SeedPlan(seed=1, workloads=("group-reader",), faults=("blink",)),
    batches_are_committed_before_they_are_read: SeedPlan(seed=1, workloads=("group-reader",), faults=("blink",)),
    a_partition_that_comes_back_is_read_from_where_the_query_was: SeedPlan(
        seed=1, workloads=("group-reader",), faults=("blink",), config={"brokers": "3"}
    ),
    queries_with_a_target_do_not_wait_for_other_members: SeedPlan(
        seed=1, workloads=("group-reader",), faults=("blink",)
    ),
    a_claim_is_taken_from_its_owner: SeedPlan(seed=0, workloads=("zookeeper-group",), faults=("blink",)),
    tombstones_of_groups_are_not_loaded: SeedPlan(seed=0, workloads=("deleted-groups",), faults=("kill",)),
    max_poll_interval_is_ignored: SeedPlan(seed=5, workloads=("consumer-group",), faults=("blink",)),
    epochs_of_heartbeats_are_not_checked: SeedPlan(seed=0, workloads=("consumer-group",), faults=("blink",)),
    epochs_of_commits_are_not_checked: SeedPlan(seed=0, workloads=("consumer-group",), faults=("blink",)),
    partitions_are_given_before_they_are_revoked: SeedPlan(seed=0, workloads=("consumer-group",), faults=("blink",)),
    static_members_are_fenced_instead_of_their_predecessors: SeedPlan(
        seed=5, workloads=("classic-group",), faults=("blink",)
    ),
}


PATIENCE_S: Final[Mapping[Plant, float]] = {
    changes_of_acls_are_missed: 30.0,
    a_new_producer_aborts_the_prepared_transaction: 60.0,
    prepared_transactions_time_out: 60.0,
    epochs_never_end: 60.0,
    claims_are_not_made: 30.0,
    max_poll_interval_is_ignored: 30.0,
    static_members_are_fenced_instead_of_their_predecessors: 30.0,
}
"""Shorter limits, for faults after which something is never done."""


@pytest.mark.parametrize("plant", PLANS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found_by_seeds(plant: Plant) -> None:
    assert_found(plant, PLANS[plant], most=FOUND_WITHIN, patience_s=PATIENCE_S.get(plant, 300.0))
