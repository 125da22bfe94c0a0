"""Planted faults, one at a time, which the workloads of logins, two-phase commit and groups find within a few seeds."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
from msgspec.structs import replace

from odradek.broker.authentication.session_authentication import SessionAuthentication
from odradek.broker.lifecycle import Broker
from odradek.clients.zookeeper_consumer.group_tree import GroupTree
from odradek.groups import ClassicGroup
from odradek.model import ErrorCode
from odradek.security import AclAuthorizer
from odradek.testing.simulated_cluster.seed_run import SeedPlan, run_seed
from odradek.testing.simulated_cluster.workloads import two_phase, zookeeper_group
from odradek.transactions.transaction_machine import TransactionMachine

Plant = Callable[[pytest.MonkeyPatch], None]


def removed_acls_are_kept(patch: pytest.MonkeyPatch) -> None:
    update = AclAuthorizer.update
    patch.setattr(AclAuthorizer, "update", lambda known, acls: update(known, {**(known._acls or {}), **(acls or {})}))


def requests_are_served_without_a_login(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SessionAuthentication, "serves", lambda *_: True)


def former_passwords_are_accepted(patch: pytest.MonkeyPatch) -> None:
    credential, known = Broker._scram_credential, dict[str, Any]()

    def first(broker: Broker, mechanism: str, user: str) -> Any:
        return known.setdefault(user, credential(broker, mechanism, user))

    patch.setattr(Broker, "_scram_credential", first)


def a_new_producer_aborts_the_prepared_transaction(patch: pytest.MonkeyPatch) -> None:
    initialise = TransactionMachine._initialise

    def forget(machine: Any, key: str, request: Any, *rest: Any) -> Any:
        return initialise(machine, key, replace(request, keep_prepared=False), *rest)

    patch.setattr(TransactionMachine, "_initialise", forget)


def prepared_transactions_time_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("odradek.transactions.transaction_machine.NO_TIMEOUT_MS", 300)


def epochs_never_end(patch: pytest.MonkeyPatch) -> None:
    for module in ("transaction", "transaction_machine"):
        patch.setattr(f"odradek.transactions.{module}.is_exhausted", lambda epoch: False)
    patch.setattr(two_phase, "PATIENCE_S", 60.0)  # the applications never commit again


def claims_are_not_made(patch: pytest.MonkeyPatch) -> None:
    async def claim(tree: GroupTree, wanted: object) -> bool:
        return True

    patch.setattr(GroupTree, "claim", claim)
    patch.setattr(zookeeper_group, "PATIENCE_S", 60.0)  # the claims never come


def former_ids_of_static_members_are_valid(patch: pytest.MonkeyPatch) -> None:
    validate = ClassicGroup.validate_commit

    def forgive(*arguments: Any) -> ErrorCode:
        error = validate(*arguments)
        return ErrorCode.none if error is ErrorCode.fenced_instance_id else error

    patch.setattr(ClassicGroup, "validate_commit", forgive)


FOUND_WITHIN: Final = 12
"""Seeds in which each planted fault is found."""
PLANS: Final[Mapping[Plant, SeedPlan]] = {
    removed_acls_are_kept: SeedPlan(seed=0, workloads=("security",), faults=("revoke_acls",)),
    requests_are_served_without_a_login: SeedPlan(seed=0, workloads=("security",), faults=("blink",)),
    former_passwords_are_accepted: SeedPlan(seed=0, workloads=("security",), faults=("rotate_password",)),
    a_new_producer_aborts_the_prepared_transaction: SeedPlan(
        seed=0, workloads=("two-phase",), faults=("blink",), count=2, virtual_s=20.0
    ),
    prepared_transactions_time_out: SeedPlan(
        seed=0, workloads=("two-phase",), faults=("blink",), count=2, virtual_s=20.0
    ),
    epochs_never_end: SeedPlan(seed=0, workloads=("two-phase",), faults=("blink",)),
    claims_are_not_made: SeedPlan(seed=0, workloads=("zookeeper-group",), faults=("blink",), count=1, virtual_s=5.0),
    former_ids_of_static_members_are_valid: SeedPlan(seed=0, workloads=("classic-group",), faults=("blink",)),
}


@pytest.mark.parametrize("plant", PLANS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found_by_seeds(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    plan = PLANS[plant]
    assert any(run_seed(replace(plan, seed=seed)).findings for seed in range(plan.seed, plan.seed + FOUND_WITHIN))
