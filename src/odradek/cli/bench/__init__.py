"""`odradek bench`: ratios against a peer, both sides in the same run, on the same machine, by the same client.

`servers` starts what is measured, each in its own process; `workloads` and `decoding` are the loads, run by `client`
in a process of its own, most of them through `librdkafka`'s C functions; `measure` repeats rounds that alternate
between the sides and takes medians. `commands` has the subcommands that say what is compared with what; `compare` is
the one that sets two whole brokers side by side, with `sides` for how they come and go and `comparisons` for what is
measured of them. `cluster_commands` does that with clusters of three brokers: `clusters` for how they come and go,
`cluster_comparisons` and `cluster_workloads` for what is measured. `recovery` measures a start after a crash,
`in_process` a cluster within a test. `kafka_peer` is Apache Kafka. Nothing here is needed to run a broker: it imports
confluent-kafka and aiokafka, and says so if they lack.
"""

from odradek.cli.bench.cluster_commands import failover, many_partitions, replicated
from odradek.cli.bench.commands import command
from odradek.cli.bench.compare import command as compare_command
from odradek.cli.bench.in_process import command as cluster_command
from odradek.cli.bench.recovery import command as recovery_command

command.add_command(cluster_command)
command.add_command(compare_command)
command.add_command(recovery_command)
command.add_command(failover)
command.add_command(replicated)
command.add_command(many_partitions)

__all__ = ["command"]
