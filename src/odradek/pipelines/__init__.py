"""Jobs from a TOML file: `real_time` (a continuous SQL query), `offline` (to files), `mirror` (to another cluster).

`config` parses the file. `queries` and `mirror` make a streaming query of it, `values` separates records that the
query cannot use, `sink_files` removes files that a killed process left, `runner` runs pipelines side by side in one
Spark, and `progress` commits their offsets to a consumer group, whose lag `odradek groups describe` shows. A restarted
query continues from its Spark checkpoint, not from the group's offsets.
"""
