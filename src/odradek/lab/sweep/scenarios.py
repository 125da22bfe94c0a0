"""Computes one scenario: a group settles, a failure happens, the strategy assigns its partitions again.

The result depends only on setting and strategy, except `assign_ms`, the processor time of the strategy.
"""

from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from odradek.lab.case import Case, LabError
from odradek.lab.measures import measure
from odradek.lab.runs import Run, run_strategy
from odradek.lab.sweep.groups import make_case, steps_of
from odradek.lab.sweep.settings import Setting, Sweep
from odradek.lab.what_if import transition
from odradek.runtime import Clock

SCHEMA: Final = pa.schema(
    [
        pa.field("scenario", pa.string(), nullable=False),
        pa.field("members", pa.int32(), nullable=False),
        pa.field("topics", pa.int32(), nullable=False),
        pa.field("partitions", pa.int32(), nullable=False),
        ("skew", pa.float64()),
        ("subscribed", pa.float64()),
        ("racks", pa.int32()),
        ("replicas", pa.int32()),
        pa.field("failure", pa.string(), nullable=False),
        pa.field("seed", pa.int64(), nullable=False),
        ("members_after", pa.int32()),
        ("partitions_after", pa.int32()),
        ("fewest", pa.int32()),
        ("most", pa.int32()),
        ("idle", pa.int32()),
        ("unread", pa.int32()),
        ("local", pa.int32()),
        ("moved", pa.int32()),
        ("stopped", pa.int32()),
        ("members_stopped", pa.int32()),
        ("rebalances", pa.int32()),
        ("assign_ms", pa.float64()),
        ("refused", pa.string()),
    ]
)
"""The columns of a file of the table; the strategy is in the name of the file's folder.

Figures from `members_after` to `assign_ms` are those after the failure; `moved`, `stopped`, `members_stopped` and
`rebalances` sum all its rebalances. If the strategy fails or the group cannot have the failure, the figures are null
and `refused` says why.
"""


def compute_row(sweep: Sweep, setting: Setting, strategy: str, clock: Clock) -> dict[str, Any]:
    """Return the row of a scenario."""
    case = sweep.group if sweep.group is not None else make_case(setting, sweep.case_random(setting))
    row: dict[str, Any] = {
        **setting,
        "scenario": sweep.identity(setting, strategy),
        "members": len(case.members),
        "topics": len(case.topics),
        "partitions": case.partition_count,
    }
    try:
        return row | _figures(sweep, setting, case, strategy, clock)
    except LabError as error:
        return row | {"refused": str(error)}


def encode(sweep: Sweep, strategy: str, first: int, last: int, clock: Clock) -> bytes:
    """Return the Parquet file of the scenarios at positions `first` to `last` - 1."""
    rows = [compute_row(sweep, sweep.setting(position), strategy, clock) for position in range(first, last)]
    output = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), output, compression="zstd")
    return bytes(output.getvalue().to_pybytes())


def _figures(sweep: Sweep, setting: Setting, case: Case, strategy: str, clock: Clock) -> dict[str, Any]:
    run, seconds = _timed(case, strategy, clock)
    if not case.owners():
        case = _at_rest(case, run, 0)
    moved = stopped = members_stopped = rebalances = 0
    steps = steps_of(str(setting["failure"]), case, sweep.failure_random(setting))
    for number, step in enumerate(steps, 1):
        changed = step.apply(case)
        former = run.protocol
        run, seconds = _timed(changed, strategy, clock)
        made = transition(case, changed, run, former=former)
        moved += len(made.moved)
        stopped += len(made.stopping_partitions)
        members_stopped += len(made.stopping_members)
        rebalances += run.generations
        case = _at_rest(changed, run, number)
    found = measure(case, run)
    return {
        "members_after": len(case.members),
        "partitions_after": case.partition_count,
        "fewest": found.fewest,
        "most": found.most,
        "idle": found.idle,
        "unread": case.partition_count - sum(map(len, run.settled.values())),
        "local": found.local,
        "moved": moved,
        "stopped": stopped,
        "members_stopped": members_stopped,
        "rebalances": rebalances,
        "assign_ms": seconds * 1000,
    }


def _timed(case: Case, strategy: str, clock: Clock) -> tuple[Run, float]:
    before = clock.busy_s()
    run = run_strategy(case, strategy)
    for some in run.settled.values():
        tuple(some)  # an assignment is computed when it is read
    return run, clock.busy_s() - before


def _at_rest(case: Case, run: Run, generation: int) -> Case:
    return case.with_owned({name: tuple(some) for name, some in run.settled.items()}, generation)
