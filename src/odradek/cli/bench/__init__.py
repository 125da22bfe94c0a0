"""`odradek bench`: ratios against a peer, both sides in the same run, on the same machine, by the same client.

`servers` starts what is measured, each in its own process; `workloads` are the loads, run by `client` in a process of
its own; `measure` repeats rounds that alternate between the sides and takes medians; one file per subcommand says what
is compared. Nothing here is needed to run a broker: it imports confluent-kafka and aiokafka, and says so if they lack.
"""

from odradek.cli.bench.commands import command

__all__ = ["command"]
