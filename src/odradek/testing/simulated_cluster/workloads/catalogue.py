"""All workloads by name, and those of a seed."""

from random import Random
from typing import Final

from odradek.testing.simulated_cluster.workloads.administration import Administration
from odradek.testing.simulated_cluster.workloads.classic_group import ClassicGroup
from odradek.testing.simulated_cluster.workloads.compacted import Compacted
from odradek.testing.simulated_cluster.workloads.consumer_group import ConsumerGroup
from odradek.testing.simulated_cluster.workloads.records import Records
from odradek.testing.simulated_cluster.workloads.transactions import Transactions
from odradek.testing.simulated_cluster.workloads.workload import Workload

WORKLOADS: Final[dict[str, type[Workload]]] = {
    "administration": Administration,
    "classic-group": ClassicGroup,
    "compacted": Compacted,
    "consumer-group": ConsumerGroup,
    "records": Records,
    "transactions": Transactions,
}


def draw_workloads(seed: int) -> list[str]:
    """Return the names of two or three workloads."""
    chance = Random(f"{seed}/workloads")
    return sorted(chance.sample(sorted(WORKLOADS), min(len(WORKLOADS), chance.choice((2, 2, 3)))))
