"""All workloads by name, and those of a seed."""

from random import Random
from typing import Final

from odradek.simulation.workloads.administration import Administration
from odradek.simulation.workloads.classic_group import ClassicGroup
from odradek.simulation.workloads.compacted import Compacted
from odradek.simulation.workloads.consumer_group import ConsumerGroup
from odradek.simulation.workloads.deleted_groups import DeletedGroups
from odradek.simulation.workloads.deletions import Deletions
from odradek.simulation.workloads.group_reader import GroupReader
from odradek.simulation.workloads.records import Records
from odradek.simulation.workloads.retained import Retained
from odradek.simulation.workloads.security import Security
from odradek.simulation.workloads.sequences import Sequences
from odradek.simulation.workloads.transactions import Transactions
from odradek.simulation.workloads.two_phase import TwoPhase
from odradek.simulation.workloads.unclean import Unclean
from odradek.simulation.workloads.workload import Workload
from odradek.simulation.workloads.zookeeper_group import ZookeeperGroup

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
