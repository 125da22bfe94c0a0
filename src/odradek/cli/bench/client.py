"""The process that a workload runs in: `python -m odradek.cli.bench.client WORKLOAD JSON`; figures come as JSON."""

import json
import signal
import sys
from typing import Any

from odradek.cli.bench import workloads


def main() -> None:
    """Run the workload that the command line names."""
    name, *rest = sys.argv[1:]
    arguments: dict[str, Any] = json.loads(rest[0]) if rest else {}
    if name == "mock":
        _mock()
        return
    print(json.dumps(workloads.WORKLOADS[name](**arguments)), flush=True)


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


if __name__ == "__main__":
    main()
