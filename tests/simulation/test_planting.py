"""A planted fault leaves nothing behind in its process."""

import logging

from tests.simulation.planting import without_logging


def test_a_logger_that_is_first_used_while_logging_is_off_logs_afterwards() -> None:
    logger = logging.getLogger("tests.simulation.first_used_while_logging_is_off")
    with without_logging():
        assert not logger.isEnabledFor(logging.CRITICAL)
    assert logger.isEnabledFor(logging.CRITICAL)
