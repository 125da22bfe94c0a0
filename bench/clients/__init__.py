"""The load of a benchmark: `processes` runs one workload in a process of its own, whose program is `client`.

The other modules have the workloads; most of them call librdkafka's C functions through `librdkafka`.
"""
