"""Jobs from a TOML file: `real_time` (a continuous SQL query), `offline` (to files), `mirror` (to another cluster).

`config` says what a file may hold. `queries` and `mirror` make a streaming query of it, `values` sorts out records that
the query cannot use, `sink_files` cleans up after a killed process, `runner` runs some pipelines side by side in one
Spark, and `progress` commits how far each has come to its own consumer group. The offsets that count are
those of a query's checkpoint: the group's are for people, `odradek groups describe` shows their lag.
"""
