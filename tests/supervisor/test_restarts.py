"""When a broker that died is started again."""

import pytest

from odradek.supervisor import Restarts
from odradek.supervisor.supervisor import FIRST_DELAY_S, GOOD_WHILE_S, LONGEST_DELAY_S

pytestmark = pytest.mark.long


def test_each_delay_is_longer_up_to_a_limit() -> None:
    restarts = Restarts()
    delays = []
    for _ in range(12):
        restarts.started(0.0)
        delays.append(restarts.died(0.0))
    assert delays[:3] == [FIRST_DELAY_S, 2 * FIRST_DELAY_S, 4 * FIRST_DELAY_S]
    assert delays[-1] == LONGEST_DELAY_S


def test_after_a_good_while_the_delay_is_short_again() -> None:
    restarts = Restarts()
    for _ in range(5):
        restarts.started(0.0)
        restarts.died(1.0)
    restarts.started(100.0)
    assert restarts.died(100.0 + GOOD_WHILE_S) == FIRST_DELAY_S
    restarts.started(0.0)
    assert restarts.died(1.0) == 2 * FIRST_DELAY_S
