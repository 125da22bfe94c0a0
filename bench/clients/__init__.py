"""The load of a benchmark: `processes` runs one workload in a process of its own, whose program is `client`.

The others hold the workloads, most of which use librdkafka's C functions through `librdkafka`.
"""
