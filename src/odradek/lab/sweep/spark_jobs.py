"""Computes the missing batches of a sweep on Spark, each as the bytes of its Parquet file."""

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

from odradek.lab.sweep.results import Batch, Results
from odradek.lab.sweep.scenarios import encode
from odradek.lab.sweep.settings import Sweep
from odradek.runtime import SystemClock
from odradek.spark.jobs import compute_items


def compute_batches(
    spark: Any, sweep: Sweep, batches: Sequence[Batch], results: Results, *, on_done: Callable[[int], None]
) -> None:
    """Compute and save `batches`; call `on_done` with the number of scenarios after each batch is saved.

    Raises, after all jobs have ended, `UnavailableError` if Spark fails, and `KeyboardInterrupt` for Ctrl-C and
    SIGTERM. Saved batches stay.
    """

    def compute(batch: Batch) -> bytes:
        return encode(sweep, batch.strategy, batch.first, batch.last, SystemClock())

    with closing(compute_items(spark, "odradek lab sweep", batches, compute)) as found:
        for batch, data in found:
            results.save(batch, data)
            on_done(batch.last - batch.first)
