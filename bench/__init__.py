"""`odradek bench`: measures Odradek against a peer, in the same run, on the same machine, with the same client.

A module for each group of subcommands: `commands` (one broker beside librdkafka's mock), `compare` (one broker beside
Apache Kafka's), `assignor_speed`, `assignor_grid`, `partitioner_requests`, `consumer_commands`, `group_commands`,
`cluster_commands` (three brokers), `connectors` (Spark), `recovery`, `replica_moves` and `in_process`. `*comparisons`
do the measurements; `measure` alternates the sides, takes medians and prints rows. `peers` has the servers, `clients`
the load. This package is not installed with Odradek; it needs confluent-kafka, aiokafka and kafka-python.
"""

from bench.assignor_grid import grid
from bench.assignor_speed import assignors
from bench.cluster_commands import failover, many_partitions, replicated, replicated_transactions
from bench.commands import command
from bench.compare import command as compare_command
from bench.connectors import connectors
from bench.consumer_commands import consumer
from bench.group_commands import groups
from bench.in_process import command as cluster_command
from bench.partitioner_requests import partitioners
from bench.recovery import command as recovery_command
from bench.replica_moves import moves

command.add_command(grid)
command.add_command(assignors)
command.add_command(cluster_command)
command.add_command(compare_command)
command.add_command(recovery_command)
command.add_command(connectors)
command.add_command(consumer)
command.add_command(failover)
command.add_command(groups)
command.add_command(replicated)
command.add_command(replicated_transactions)
command.add_command(many_partitions)
command.add_command(moves)
command.add_command(partitioners)

__all__ = ["command"]
