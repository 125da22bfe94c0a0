"""Spark jobs from a TOML file: `real_time` (a continuous query), `offline` (to files), `mirror` (to another cluster).

`config` parses the file. `queries` and `mirror` start its streaming query, `values` separates records that the query
cannot use, `sinks` checks the sink, and `files` removes files that a killed process left in the sink. `runner` runs
pipelines side by side in one Spark, each with its `attempts`, and writes their `status`. `progress` commits their
offsets to a consumer group, whose lag `odradek groups describe` shows; a restarted query continues from its Spark
checkpoint.

A new kind needs its keys in `config.pipelines` and `config.parsing`, a file in `config.examples`, and its start in
`queries` and `attempts`.
"""
