"""Workloads for clusters: a producer's pause at a broker's fault, and the times to create, elect and be in sync.

They kill brokers from the client's process, because it has the measuring clock.
"""

import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from bench.clients.librdkafka import CProducer
from bench.clients.workloads import Figures, await_leaders, create_topic

_STEADY_S: Final = 1.0
_PER_SECOND: Final = 200
_PATIENCE_S: Final = 300.0
_POLL_S: Final = 0.02
_IMPATIENT: Final = {
    # A stopped broker does not answer, and by default a client waits a minute for its responses.
    "socket.timeout.ms": 1000,
    "api.version.request.timeout.ms": 1000,
    # Measure the brokers, not the interval at which a client refreshes its metadata.
    "topic.metadata.refresh.interval.ms": 100,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
}


def fail_over(
    bootstrap_servers: str, *, topic: str, pids: Sequence[int], sign: int, controller: int, hits_controller: bool
) -> Figures:
    """Send the signal `sign` to a partition's leader; return the ms until a record produced later is acknowledged.

    The topic is created, and stays: a partition and a replica for each broker, with min.insync.replicas 2. `pids` are
    the brokers' processes by id. The leader is the controller exactly if `hits_controller`. An idempotent producer with
    `acks=all` sends 200 records a second; none may be lost or duplicated.
    """
    from confluent_kafka.admin import AdminClient

    where = {"bootstrap.servers": bootstrap_servers}
    config = {"min.insync.replicas": "2"}
    create_topic(bootstrap_servers, topic=topic, partitions=len(pids), replicas=len(pids), config=config)
    found = await_leaders(AdminClient(where), topic, len(pids)).partitions
    leaders = {partition: each.leader for partition, each in found.items()}
    partition = next(number for number, leader in leaders.items() if (leader == controller) is hits_controller)
    writer = _SteadyWriter(bootstrap_servers, topic, partition)
    steady = time.perf_counter() + _STEADY_S
    writer.write_until(lambda: writer.last_acknowledged >= 0 and time.perf_counter() > steady)
    before, signalled = writer.sent, time.perf_counter()
    os.kill(pids[leaders[partition]], sign)
    writer.write_until(lambda: writer.last_acknowledged >= before)
    pause_ms = (writer.acknowledged_at - signalled) * 1000
    writer.finish()
    reader = CProducer(where)
    there = reader.end_offset(topic, partition)
    reader.close()
    assert there == writer.sent, f"{writer.sent} records were acknowledged, and {there} are there"
    return {"pause_ms": pause_ms, "leader": leaders[partition], "records": writer.sent}


class _SteadyWriter:
    """Sends numbered records at a steady rate; `acknowledged_at` is the time when `last_acknowledged` was."""

    def __init__(self, bootstrap_servers: str, topic: str, partition: int) -> None:
        from confluent_kafka import Producer

        settings = {"acks": "all", "enable.idempotence": True, "linger.ms": 0, "log_level": 0, **_IMPATIENT}
        self._producer = Producer({"bootstrap.servers": bootstrap_servers, **settings})
        self._topic, self._partition = topic, partition
        self._began = time.perf_counter()
        self.sent = 0
        self.last_acknowledged = -1
        self.acknowledged_at = 0.0

    def write_until(self, condition: Callable[[], bool]) -> None:
        """Write until `condition` holds. Raises `TimeoutError` after five minutes."""
        deadline = time.perf_counter() + _PATIENCE_S
        while not condition():
            now = time.perf_counter()
            if now > deadline:
                raise TimeoutError(f"no record was acknowledged for {_PATIENCE_S:g} s")
            if self.sent <= (now - self._began) * _PER_SECOND:
                self._send()
            self._producer.poll(0.25 / _PER_SECOND)

    def finish(self) -> None:
        """Wait until all records are acknowledged."""
        left = self._producer.flush(_PATIENCE_S)
        assert left == 0, f"{left} records are not acknowledged"

    def _send(self) -> None:
        number = self.sent

        def delivered(error: Any, _message: Any) -> None:
            assert error is None, f"record {number} is lost: {error}"
            if number > self.last_acknowledged:
                self.last_acknowledged, self.acknowledged_at = number, time.perf_counter()

        self._producer.produce(self._topic, b"%d" % number, partition=self._partition, on_delivery=delivered)
        self.sent += 1


def await_in_sync(bootstrap_servers: str, *, topics: Sequence[str], brokers: int) -> Figures:
    """Wait until all partitions of the topics have `brokers` replicas in sync; return the seconds."""
    from confluent_kafka.admin import AdminClient

    began = time.perf_counter()
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, **_IMPATIENT})
    for topic in topics:
        await_leaders(admin, topic, brokers, within_s=_PATIENCE_S)
    return {"seconds": time.perf_counter() - began}


def create_many(bootstrap_servers: str, *, topics: Sequence[str], partitions: int, replicas: int) -> Figures:
    """Create topics of `partitions` each; return the seconds until every broker knows a leader of each partition."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    admin.list_topics(timeout=_PATIENCE_S)  # connect before the clock starts
    began = time.perf_counter()
    for topic in topics:
        wanted = NewTopic(topic, partitions, replicas)
        for future in admin.create_topics(
            [wanted], operation_timeout=_PATIENCE_S, request_timeout=_PATIENCE_S
        ).values():
            future.result()
    asked = time.perf_counter() - began
    await_elected(bootstrap_servers, topics=topics, partitions=partitions)
    return {"asked": asked, "seconds": time.perf_counter() - began}


def await_elected(
    bootstrap_servers: str, *, topics: Sequence[str], partitions: int, dead: int = -1, pid: int = 0, sign: int = 0
) -> Figures:
    """Send `sign` to process `pid` of broker `dead`, if given; return the seconds until all partitions have leaders.

    A leader other than `dead` must be known to each of `bootstrap_servers`, which must not include `dead`.
    """
    from confluent_kafka.admin import AdminClient

    admins = [AdminClient({"bootstrap.servers": address}) for address in bootstrap_servers.split(",")]
    for admin in admins:
        admin.list_topics(topics[0], timeout=_PATIENCE_S)
    began = time.perf_counter()
    if pid:
        os.kill(pid, sign)
    for admin in admins:
        while not _all_led(admin, topics, partitions, dead):
            assert time.perf_counter() < began + _PATIENCE_S, f"not every partition has a leader after {_PATIENCE_S} s"
            time.sleep(_POLL_S)
    return {"seconds": time.perf_counter() - began}


def _all_led(admin: Any, topics: Sequence[str], partitions: int, dead: int) -> bool:
    """Return whether every partition has a leader that is not the dead broker; the last topic is checked first."""
    for topic in reversed(topics):
        seen = admin.list_topics(topic, timeout=_PATIENCE_S).topics[topic]
        led = [each for each in seen.partitions.values() if each.leader >= 0 and each.leader != dead]
        if seen.error is not None or len(led) < partitions:
            return False
    return True
