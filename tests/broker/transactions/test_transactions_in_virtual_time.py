"""Transactions stay isolated and atomic while brokers, coordinators and clients fail by a seed.

`ODRADEK_SEEDS=500 pytest tests/broker/transactions/test_transactions_in_virtual_time.py` tries so many.
"""

import pytest

from odradek.simulation.seed_run import SeedPlan, run_seed
from tests.world.sampling import assert_no_findings, seeds

pytestmark = pytest.mark.long


@pytest.mark.parametrize("seed", seeds(2))
def test_transactions_are_isolated_and_atomic_amid_faults(seed: int) -> None:
    result = run_seed(SeedPlan(seed=seed, workloads=("transactions",)))
    assert_no_findings(result)
