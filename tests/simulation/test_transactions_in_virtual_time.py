"""Transactions stay isolated and atomic while brokers, coordinators and clients fail by a seed.

`ODRADEK_SEEDS=500 pytest tests/simulation/test_transactions_in_virtual_time.py` tries so many.
"""

import pytest
from sampling import seeds
from transactional_world import play_transactional_faults


@pytest.mark.parametrize("seed", seeds(4))
def test_transactions_are_isolated_and_atomic_amid_faults(seed: int) -> None:
    assert play_transactional_faults(seed)
