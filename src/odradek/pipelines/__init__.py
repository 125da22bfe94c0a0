"""Spark jobs from a TOML file: `real_time` (a continuous query), `offline` (to files), `mirror` (to another cluster).

`runner` runs pipelines side by side in one Spark, each with its `attempts`; a restarted query continues from its Spark
checkpoint. A new kind needs its keys in `config.pipelines` and `config.parsing`, a file in `config.examples`, and its
start in `queries` and `attempts`.
"""
