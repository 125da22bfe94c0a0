"""Sweeps: runs strategies on thousands to millions of groups and failures with Spark, into a Parquet table.

`parsing` reads the TOML file with `tables`, `settings` counts and orders its scenarios, `groups` makes the group of a
setting and the steps of a failure, `scenarios` computes a scenario, `results` is the directory of finished scenarios,
`spark_jobs` computes the missing ones. `summary` and `heat_maps` read the table.
"""

from odradek.lab.sweep.parsing import load_sweep
from odradek.lab.sweep.settings import Setting, Sweep

__all__ = ["Setting", "Sweep", "load_sweep"]
