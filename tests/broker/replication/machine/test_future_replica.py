"""The next step of the copy of a log that moves between directories."""

import pytest

from odradek.broker.replication.machine.future_replica import Action, Extent, next_step


@pytest.mark.parametrize(
    ("log", "copy", "truncated_to", "step"),
    [
        ((0, 0), (0, 0), None, (Action.SWAP, 0)),
        ((0, 9), (0, 0), None, (Action.COPY, 0)),
        ((0, 9), (0, 4), None, (Action.COPY, 4)),
        ((0, 9), (0, 9), None, (Action.SWAP, 9)),
        ((5, 9), (5, 5), None, (Action.COPY, 5)),
        ((5, 9), (3, 6), None, (Action.COPY, 6)),
        ((5, 9), (0, 4), None, (Action.RESTART, 5)),
        ((0, 9), (0, 7), 7, (Action.COPY, 7)),
        ((0, 9), (0, 7), 8, (Action.COPY, 7)),
        ((0, 9), (0, 7), 5, (Action.TRUNCATE, 5)),
        ((2, 2), (5, 7), 2, (Action.RESTART, 2)),
        ((5, 9), (5, 7), 5, (Action.TRUNCATE, 5)),
        ((5, 9), (0, 7), 4, (Action.RESTART, 5)),
        ((2, 9), (5, 7), None, (Action.RESTART, 2)),
        ((0, 5), (0, 7), 5, (Action.TRUNCATE, 5)),
    ],
)
def test_a_copy_follows_its_log(
    log: tuple[int, int], copy: tuple[int, int], truncated_to: int | None, step: tuple[Action, int]
) -> None:
    assert next_step(Extent(*log), Extent(*copy), truncated_to) == step
