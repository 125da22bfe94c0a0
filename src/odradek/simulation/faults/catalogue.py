"""All faults by name."""

from collections.abc import Collection
from typing import Final

from odradek.simulation.faults import (
    administration,
    aimed,
    disks,
    network,
    processes,
    recovery,
    retention,
    security,
    shortages,
    time,
    transactions,
    tree,
)
from odradek.simulation.faults.schedule import Fault
from odradek.simulation.promises import BROKERS

FAULTS: Final[dict[str, Fault]] = {
    fault.__name__: fault
    for fault in (
        processes.kill, processes.cut_power, processes.stop,
        network.disconnect, network.disconnect_one_way, network.isolate, network.reject, network.disconnect_client,
        network.lose_responses_to_clients, network.slow_links, network.jitter, network.unplug,
        tree.disconnect_tree, tree.blink, tree.expire, tree.depose, tree.unregister,
        disks.flip_bit, disks.fill_disk, disks.slow_disk, disks.take_descriptors,
        disks.fail_syncs, disks.lose_directory,
        recovery.kill_in_recovery, recovery.damage_files,
        retention.shorten_retention, retention.delete_records, retention.force_cleaner,
        shortages.take_sockets, shortages.crowd, shortages.hoard,
        time.pause, time.pause_client, time.jump_clock, time.jump_one_clock, time.drift,
        administration.create, administration.reassign, administration.rolling_restart,
        administration.move_directory,
        aimed.kill_leader_ahead, aimed.strand_leader, aimed.kill_at_isr_change, aimed.restart_in_flight,
        aimed.kill_in_sync, aimed.restart_all, aimed.kill_at_a_rare_branch, aimed.hold_over_elections,
        aimed.cut_power_beside_isr, aimed.restart_unseen,
        transactions.crash_at_an_end, transactions.abort_while_requests_are_held, transactions.oversleep,
        security.revoke_acls, security.rotate_password,
    )
}  # fmt: skip
_OF_WORKLOADS: Final = {
    "crash_at_an_end": "transactions",
    "abort_while_requests_are_held": "transactions",
    "oversleep": "transactions",
    "revoke_acls": "security",
    "rotate_password": "security",
    "shorten_retention": "retained",
    "delete_records": "retained",
    "force_cleaner": "compacted",
}
"""The workload without which a fault has no effect; a seed draws the fault three times as often as others."""
_NEEDS_BROKERS: Final = frozenset(
    {
        "disconnect", "disconnect_one_way", "isolate", "flip_bit", "fail_syncs", "lose_directory", "kill_in_recovery",
        "damage_files", "reassign", "move_directory", "kill_leader_ahead", "strand_leader", "kill_at_isr_change",
        "kill_in_sync", "hold_over_elections", "cut_power_beside_isr", "restart_unseen",
    }
)  # fmt: skip
"""Faults between brokers, and those that a cluster of one broker does not survive: it has the only copies."""
_OFTEN: Final = [name for name, fault in FAULTS.items() if fault.__module__ == aimed.__name__]
"""Faults that a seed draws twice as often as others."""


def names_for(workloads: Collection[str], *, brokers: int = BROKERS) -> list[str]:
    """Return the faults that have an effect on these workloads; one that is drawn more often is there repeatedly."""
    often = [*_OFTEN, *_OF_WORKLOADS, *_OF_WORKLOADS]
    names = [name for name in [*FAULTS, *often] if _OF_WORKLOADS.get(name) in (None, *workloads)]
    names = [name for name in names if brokers > 1 or name not in _NEEDS_BROKERS]
    return names + ["kill_in_sync"] * (len(names) // 4 if "unclean" in workloads else 0)
