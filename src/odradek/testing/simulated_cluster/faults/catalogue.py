"""All faults by name."""

from typing import Final

from odradek.testing.simulated_cluster.faults import administration, disks, network, processes, tree
from odradek.testing.simulated_cluster.faults.schedule import Fault

FAULTS: Final[dict[str, Fault]] = {
    fault.__name__: fault
    for fault in (
        processes.kill, processes.cut_power, processes.stop,
        network.disconnect, network.disconnect_one_way, network.isolate, network.reject, network.disconnect_client,
        network.lose_responses_to_clients,
        tree.disconnect_tree, tree.blink, tree.expire, tree.depose, tree.unregister,
        disks.flip_bit, administration.create,
    )
}  # fmt: skip
