"""All workloads by name."""

from typing import Final

from odradek.testing.simulated_cluster.workloads.records import Records
from odradek.testing.simulated_cluster.workloads.workload import Workload

WORKLOADS: Final[dict[str, type[Workload]]] = {"records": Records}
