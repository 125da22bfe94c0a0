"""The program of a client process: `client_command(WORKLOAD, JSON)` runs it, and it prints its figures as JSON."""

import json
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

from bench.clients import (
    cluster_workloads,
    consuming,
    decoding,
    group_requests,
    logins,
    open_transactions,
    pipelined_requests,
    producing,
    transactions,
    workloads,
)

WORKLOADS: Final[dict[str, Callable[..., workloads.Figures]]] = {
    "produce": workloads.produce,
    "fetch": workloads.fetch,
    "requests": workloads.requests,
    "latency": workloads.latency,
    "saturate": workloads.saturate,
    "crowd": pipelined_requests.pipeline_requests,
    "group_requests": group_requests.group_requests,
    "logins": logins.logins,
    "create_acls": logins.create_acls,
    "transactions": transactions.transactions,
    "our_transactions": transactions.our_transactions,
    "process": transactions.process,
    "open_transactions": open_transactions.open_transactions,
    "await_transactions": open_transactions.await_transactions,
    "first_record": workloads.first_record,
    "fill": workloads.fill,
    "create_topic": workloads.create_topic,
    "alter_topic": workloads.alter_topic,
    "delete_topic": workloads.delete_topic,
    "fail_over": cluster_workloads.fail_over,
    "await_in_sync": cluster_workloads.await_in_sync,
    "create_many": cluster_workloads.create_many,
    "await_elected": cluster_workloads.await_elected,
    "spark_batch": decoding.spark_batch,
    "confluent-kafka": decoding.consume_confluent,
    "aiokafka": decoding.consume_aiokafka,
    "kafka-python": decoding.consume_kafka_python,
    "poll": decoding.consume_poll,
    "arrow": decoding.consume_arrow,
    "our_latency": consuming.our_latency,
    "idle_partitions": consuming.idle_partitions,
    "kernel": decoding.kernel,
    "produce send": producing.produce_odradek,
    "produce send_arrow": producing.produce_arrow,
    "produce confluent-kafka": producing.produce_confluent,
    "produce aiokafka": producing.produce_aiokafka,
    "produce kafka-python": producing.produce_kafka_python,
}


def main() -> None:
    """Run the workload of the command line, or the mock cluster."""
    name, *rest = sys.argv[1:]
    arguments: dict[str, Any] = json.loads(rest[0]) if rest else {}
    if name == "mock":
        _mock()
        return
    print(json.dumps(WORKLOADS[name](**arguments)), flush=True)


def _mock() -> None:
    """Serve librdkafka's mock cluster until SIGTERM."""
    from confluent_kafka import Producer

    host = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 1, "log_level": 0})
    broker = next(iter(host.list_topics(timeout=10).brokers.values()))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    print(f"ready: {broker.host}:{broker.port}", flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        return
