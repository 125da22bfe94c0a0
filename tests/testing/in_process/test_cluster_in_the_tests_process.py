"""Clusters in processes that fork, replace Python's clocks and threads, live for long, and pass values of any type."""

import _thread
import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from odradek.clients import blocking
from odradek.clients.admin import NewTopic
from odradek.clients.admin.descriptions import ConfigResource, ConfigResourceType
from odradek.config.altering import Alteration, AlterOperation
from odradek.config.properties import property_texts
from odradek.model import ConfigurationError
from odradek.runtime.file_locks import FileLock, lock_holder
from odradek.testing import Cluster, eventually
from odradek.testing.machine_clock import MachineClock

DEADLINE_S = 30.0
HOUR_MS = 3_600_000
forks = pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")


@contextmanager
def child(work: Callable[[], object] = lambda: None) -> Iterator[None]:
    """Fork a process that does `work` and lives until the block ends. An error of `work` fails the test."""
    done_there, done = os.pipe()
    ends_there, ends = os.pipe()
    process_id = os.fork()
    if not process_id:
        status = b"1"
        try:
            work()
            status = b"0"
        finally:
            os.write(done, status)
            os.close(ends)
            os.read(ends_there, 1)
            os._exit(0)
    try:
        os.close(ends_there)
        assert os.read(done_there, 1) == b"0"
        yield
    finally:
        for each in (ends, done_there, done):
            os.close(each)
        os.waitpid(process_id, 0)


def has_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def is_refused(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), DEADLINE_S).close()
    except ConnectionRefusedError:
        return True
    return False


@forks
@pytest.mark.parametrize("security", ["plaintext", "sasl_ssl"])
def test_a_killed_broker_is_gone_and_starts_again_while_a_child_lives(security: str):
    with Cluster(2, security=security) as cluster:
        host, _, port = cluster.address(1).rpartition(":")
        with socket.create_connection((host, int(port)), DEADLINE_S) as connection, child():
            cluster.kill(1)
            assert has_ended(connection)
            assert is_refused(cluster.address(1))
            cluster.restart(1)
            cluster.create_topic("t", replication_factor=2)
            eventually(lambda: len(cluster.described(0).brokers) == 2)


@forks
def test_a_cluster_follows_another_over_the_same_folder_while_a_child_lives(tmp_path: Path):
    with Cluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("t")
        address = cluster.address(0)
        with child():
            cluster.stop()
            assert is_refused(address)
            with Cluster(data_dir=tmp_path) as next_one:
                assert next_one.leader("t", 0) == 0


@forks
def test_a_child_uses_the_addresses_and_ends_nothing_of_its_parents():
    with Cluster() as cluster:
        cluster.create_topic("t")

        def use() -> None:
            with cluster.producer() as producer:
                producer.send("t", b"from a child").result(DEADLINE_S)
            for refused in (cluster.kill, cluster.restart, cluster.pause):
                with pytest.raises(RuntimeError, match="the process that this one was forked from"):
                    refused(0)
            cluster.stop()

        with child(use), cluster.consumer("t") as consumer:
            assert [each.value for each in consumer.poll(timeout_ms=30_000)] == [b"from a child"]


def test_a_lock_is_free_after_its_release_although_another_process_has_the_open_file(tmp_path: Path):
    path = str(tmp_path / ".lock")
    lock = FileLock.take(path, "one")
    inherited = os.dup(lock._descriptor)
    assert lock_holder(path) == f"process {os.getpid()} (one)"
    lock.release()
    assert lock_holder(path) is None
    FileLock.take(path, "another").release()
    os.close(inherited)


@forks
def test_a_childs_release_leaves_the_lock_to_its_parent(tmp_path: Path):
    path = str(tmp_path / ".lock")
    lock = FileLock.take(path, "one")
    with child(lock.release), pytest.raises(BlockingIOError):
        FileLock.take(path, "another")
    lock.release()


def frozen(library: str, moment: str) -> AbstractContextManager[Any]:
    if library == "freezegun":
        freezer: AbstractContextManager[Any] = pytest.importorskip("freezegun").freeze_time(moment)
        return freezer
    traveller: AbstractContextManager[Any] = pytest.importorskip("time_machine").travel(moment, tick=False)
    return traveller


@pytest.mark.parametrize("library", ["freezegun", "time_machine"])
@pytest.mark.parametrize("moment", ["2012-01-14", "2035-01-14"])
@pytest.mark.parametrize("mechanism", ["none", "PLAIN", "OAUTHBEARER"])
def test_brokers_have_the_machines_clock_while_a_test_freezes_its_own(library: str, moment: str, mechanism: str):
    security = "plaintext" if mechanism == "none" else "sasl_ssl"
    with frozen(library, moment), Cluster(security=security) as cluster:
        cluster.create_topic("t")
        login = {} if mechanism == "none" else {"mechanism": mechanism}
        errors: list[Any] = []
        producer = confluent_kafka.Producer({**cluster.settings(client="confluent-kafka", **login), "log_level": 0})
        producer.produce("t", b"real time", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(DEADLINE_S) == 0
        assert errors == [None]
        with blocking.Producer(**cluster.settings(**login)) as frozen_producer:
            frozen_producer.send("t", b"frozen time").result(DEADLINE_S)
        session = cluster._threads[0].broker.store
        before = session.alive_until
        eventually(lambda: session.alive_until > before, what="the broker's lease is renewed")


@pytest.mark.parametrize("library", ["freezegun", "time_machine"])
def test_the_machines_clock_is_not_the_tests(library: str):
    clock = MachineClock()
    before_ms, before_s = clock.now_ms(), clock.monotonic()
    with frozen(library, "2012-01-14"):
        assert before_ms <= clock.now_ms() < before_ms + HOUR_MS
        assert before_s <= clock.monotonic() < before_s + 3600


def test_records_offsets_and_leaders_stay_as_they_are_unless_the_config_says_otherwise():
    topic, broker = (
        ConfigResource(type=ConfigResourceType.TOPIC, name="t"),
        ConfigResource(type=ConfigResourceType.BROKER, name="0"),
    )

    def found(**config: Any) -> dict[str, str | None]:
        with Cluster(config={key.replace("_", "."): value for key, value in config.items()}) as cluster:
            cluster.create_topic("t")
            with cluster.admin() as admin:
                entries = admin.describe_configs([topic, broker])
            return {entry.name: entry.value for each in (broker, topic) for entry in entries[each]}

    lasting = found()
    assert lasting["retention.ms"] == "-1"
    assert lasting["message.timestamp.after.max.ms"] == str(2**63 - 1)
    assert lasting["offsets.retention.minutes"] == lasting["producer.id.expiration.ms"] == str(2**31 - 1)
    assert lasting["auto.leader.rebalance.enable"] == "false"
    assert found(log_retention_hours=1)["retention.ms"] == str(HOUR_MS)
    assert found(log_retention_minutes=60)["retention.ms"] == str(HOUR_MS)
    assert found(log_retention_ms=HOUR_MS)["retention.ms"] == str(HOUR_MS)


def test_python_values_of_settings_are_taken(tmp_path: Path):
    config = {"auto.create.topics.enable": False, "num.partitions": 2, "sasl.enabled.mechanisms": ["PLAIN"]}
    with Cluster(config=config, broker_configs={0: {"log.roll.hours": 24.0}}, data_dir=tmp_path) as cluster:
        cluster.create_topic("t", partitions=3, config={"retention.ms": 1000, "cleanup.policy": ("compact", "delete")})
        with cluster.admin() as admin:
            admin.create_topic("u", configs={"preallocate": False, "min.cleanable.dirty.ratio": 0.25})
            resource = ConfigResource(type=ConfigResourceType.TOPIC, name="u")
            admin.alter_configs(resource, [Alteration(name="segment.ms", operation=AlterOperation.SET, value=5000)])  # type: ignore[arg-type]
            entries = {entry.name: entry.value for entry in admin.describe_configs([resource])[resource]}
            assert (entries["segment.ms"], entries["min.cleanable.dirty.ratio"]) == ("5000", "0.25")
            assert [len(each.partitions) for each in admin.list_topics()] == [3, 2]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"), (False, "false"), (7, "7"), (-1, "-1"), (2**63, str(2**63)), (0.5, "0.5"), (1e3, "1000"),
        ("x", "x"), ("", ""), ("True", "True"), (["a", "b"], "a,b"), (("a",), "a"), ([], ""), ([1, True], "1,true"),
        (Path("/a/b"), "/a/b"), (float("inf"), "inf"),
    ],
)  # fmt: skip
def test_a_python_value_has_kafkas_text(value: Any, text: str):
    assert property_texts({"a.key": value}) == {"a.key": text}


@pytest.mark.parametrize("value", [None, b"x", object(), {"a": 1}, {1}, [None], int])
def test_a_value_without_a_text_is_refused_with_its_key(value: Any):
    with pytest.raises(TypeError, match=r"^a\.key is a string, a number, a bool or a list of these, not of type \w+$"):
        Cluster(config={"a.key": value})
    with pytest.raises(TypeError, match=r"a\.key is a string"):
        Cluster(broker_configs={0: {"a.key": value}})
    with pytest.raises(TypeError, match=r"a\.key is a string"):
        NewTopic(name="t", configs={"a.key": value}).message()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"partitions": "3"}, "partitions is a whole number, not '3'"),
        ({"partitions": 3.0}, r"partitions is a whole number, not 3\.0"),
        ({"partitions": None}, "partitions is a whole number, not None"),
        ({"partitions": 2**31}, "partitions is a number of 32 bits, not 2147483648"),
        ({"replication_factor": "1"}, "replication_factor is a whole number, not '1'"),
        ({"replication_factor": 2**15}, "replication_factor is a number of 16 bits, not 32768"),
        ({"assignment": {"0": [0]}}, "a partition is a whole number, not '0'"),
        ({"assignment": {0: ["0"]}}, "a broker id is a whole number, not '0'"),
        ({"assignment": {0: 0}}, "expected a list, not 0"),
        ({"assignment": {0: "0"}}, "a broker id is a whole number, not '0'"),
        ({"name": 5}, "a name is a string, not 5"),
        ({"config": {"retention.ms": None}}, r"retention\.ms is a string, a number"),
    ],
)
def test_arguments_of_other_types_are_refused_by_name(kafka: Cluster, arguments: dict[str, Any], error: str):
    with pytest.raises((TypeError, ValueError), match=error):
        kafka.create_topic(**{"name": "refused", **arguments})
    names = {"assignment": "assignments", "config": "configs"}
    with pytest.raises((TypeError, ValueError), match=error):
        NewTopic(**{"name": "refused", **{names.get(key, key): value for key, value in arguments.items()}}).message()


def test_a_number_of_brokers_is_whole_and_an_unknown_text_names_its_key():
    with pytest.raises(TypeError, match="brokers is a whole number, not '3'"):
        Cluster(brokers="3")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match=r"Invalid value many for configuration num\.partitions"):
        Cluster(config={"num.partitions": "many"}).start()


@pytest.mark.parametrize(("module", "name"), [(_thread, "start_new_thread"), (queue, "SimpleQueue")])
def test_threads_that_gevent_has_replaced_are_an_error_at_once(monkeypatch: pytest.MonkeyPatch, module: Any, name: str):
    class Replaced:
        pass

    before = threading.active_count()
    monkeypatch.setattr(module, name, Replaced())
    with pytest.raises(RuntimeError, match=r"a Cluster needs Python's own threads, .* gevent"):
        Cluster().start()
    monkeypatch.undo()
    assert threading.active_count() == before
