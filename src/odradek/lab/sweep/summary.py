"""Computes means over the table of a sweep, by strategy or any other axes."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from odradek.lab.sweep.settings import Sweep

MEASURES: Final = {
    "moved": "partitions that move, % of all",
    "stopped": "partitions that stop, % of all",
    "idle": "members without a partition, %",
    "spread": "most − fewest partitions of a member",
    "local": "partitions with a replica on their member's rack, %",
    "assign": "processor time of the strategy, ms",
}
"""The meaning of each measure, by name. A partition that two rebalances move counts twice."""

_COLUMNS: Final = (
    "partitions", "members_after", "partitions_after", "fewest", "most", "idle", "local", "moved", "stopped",
    "assign_ms", "refused",
)  # fmt: skip
_PARTITIONING: Final = ds.partitioning(pa.schema([("strategy", pa.string())]), flavor="hive")


def means(table: str, sweep: Sweep, by: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row for each combination of the axes `by` in the Parquet table, in the order of their values.

    A row has the axes, the counts `scenarios` and `refused`, and the mean of each measure over the scenarios that are
    not refused (None without any).
    """
    columns = dict.fromkeys((*by, *_COLUMNS))
    found = ds.dataset(table, format="parquet", partitioning=_PARTITIONING)
    read = found.to_table(columns=list(columns), filter=pc.field("strategy").isin(list(sweep.strategies)))
    figures = {axis: read[axis] for axis in by} | {
        "refused": pc.cast(pc.is_valid(read["refused"]), pa.int64()),
        "moved": _percent(read["moved"], read["partitions"]),
        "stopped": _percent(read["stopped"], read["partitions"]),
        "idle": _percent(read["idle"], read["members_after"]),
        "spread": pc.cast(pc.subtract(read["most"], read["fewest"]), pa.float64()),
        "local": _percent(read["local"], read["partitions_after"]),
        "assign": read["assign_ms"],
    }
    grouped = (
        pa.table(figures)
        .group_by(list(by))
        .aggregate([("refused", "count"), ("refused", "sum"), *((name, "mean") for name in MEASURES)])
    )
    rows = [
        {axis: row[axis] for axis in by}
        | {"scenarios": row["refused_count"], "refused": row["refused_sum"]}
        | {name: row[f"{name}_mean"] for name in MEASURES}
        for row in grouped.to_pylist()
    ]
    values = {**sweep.axes, "strategy": sweep.strategies}
    places = {axis: {value: place for place, value in enumerate(values[axis])} for axis in by}
    return sorted(rows, key=lambda row: [places[axis][row[axis]] for axis in by])


def _percent(part: Any, whole: Any) -> Any:
    return pc.multiply(pc.divide(pc.cast(part, pa.float64()), pc.cast(whole, pa.float64())), 100.0)
