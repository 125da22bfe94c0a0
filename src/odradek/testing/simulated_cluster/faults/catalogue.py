"""All faults by name."""

from collections.abc import Collection
from typing import Final

from odradek.testing.simulated_cluster.faults import (
    administration,
    disks,
    network,
    processes,
    retention,
    security,
    shortages,
    time,
    transactions,
    tree,
)
from odradek.testing.simulated_cluster.faults.schedule import Fault

FAULTS: Final[dict[str, Fault]] = {
    fault.__name__: fault
    for fault in (
        processes.kill, processes.cut_power, processes.stop,
        network.disconnect, network.disconnect_one_way, network.isolate, network.reject, network.disconnect_client,
        network.lose_responses_to_clients, network.slow_links, network.jitter, network.unplug,
        tree.disconnect_tree, tree.blink, tree.expire, tree.depose, tree.unregister,
        disks.flip_bit, disks.fill_disk, disks.slow_disk, disks.take_descriptors,
        disks.fail_syncs, disks.lose_directory,
        retention.shorten_retention, retention.delete_records, retention.force_cleaner,
        shortages.take_sockets, shortages.crowd, shortages.hoard,
        time.pause, time.pause_client, time.jump_clock, time.jump_one_clock, time.drift,
        administration.create, administration.reassign, administration.rolling_restart,
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
"""The workload without which a fault has no effect."""


def names_for(workloads: Collection[str]) -> list[str]:
    """Return the names of the faults that have an effect on these workloads."""
    return [name for name in FAULTS if _OF_WORKLOADS.get(name) in (None, *workloads)]
