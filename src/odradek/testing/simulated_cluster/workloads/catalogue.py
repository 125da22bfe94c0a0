"""All workloads by name, and those of a seed."""

from random import Random
from typing import Final

from odradek.testing.simulated_cluster.workloads.administration import Administration
from odradek.testing.simulated_cluster.workloads.classic_group import ClassicGroup
from odradek.testing.simulated_cluster.workloads.compacted import Compacted
from odradek.testing.simulated_cluster.workloads.consumer_group import ConsumerGroup
from odradek.testing.simulated_cluster.workloads.deleted_groups import DeletedGroups
from odradek.testing.simulated_cluster.workloads.deletions import Deletions
from odradek.testing.simulated_cluster.workloads.group_reader import GroupReader
from odradek.testing.simulated_cluster.workloads.records import Records
from odradek.testing.simulated_cluster.workloads.retained import Retained
from odradek.testing.simulated_cluster.workloads.security import Security
from odradek.testing.simulated_cluster.workloads.sequences import Sequences
from odradek.testing.simulated_cluster.workloads.transactions import Transactions
from odradek.testing.simulated_cluster.workloads.two_phase import TwoPhase
from odradek.testing.simulated_cluster.workloads.unclean import Unclean
from odradek.testing.simulated_cluster.workloads.workload import Workload
from odradek.testing.simulated_cluster.workloads.zookeeper_group import ZookeeperGroup

WORKLOADS: Final[dict[str, type[Workload]]] = {
    "administration": Administration,
    "classic-group": ClassicGroup,
    "compacted": Compacted,
    "consumer-group": ConsumerGroup,
    "deleted-groups": DeletedGroups,
    "deletions": Deletions,
    "group-reader": GroupReader,
    "records": Records,
    "security": Security,
    "retained": Retained,
    "sequences": Sequences,
    "transactions": Transactions,
    "two-phase": TwoPhase,
    "unclean": Unclean,
    "zookeeper-group": ZookeeperGroup,
}


def draw_workloads(seed: int) -> list[str]:
    """Return the names of one or two workloads; in one of four seeds they log in, and `security` is added."""
    chance = Random(f"{seed}/workloads")
    names = sorted(chance.sample([name for name in sorted(WORKLOADS) if name != "security"], chance.choice((1, 2, 2))))
    return ["security", *names] if chance.random() < 1 / 4 else names
