"""The blocking clients: the same names, signatures and results as the asynchronous ones, from any thread (M12)."""

import asyncio
import inspect
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import TracebackType
from typing import Any, Self

import pytest

from odradek import clients
from odradek.clients import blocking
from odradek.clients.blocking import loop_thread
from odradek.clients.blocking.blocking_classes import blocking_class
from odradek.model import ConfigurationError, KafkaError, TopicPartition
from tests.clients.blocking_stubs import CLASSES, INNER, PATH, stub

SCRIPT = "import sys; from odradek.clients.blocking import *; servers = sys.argv[1]; "


@pytest.fixture
def topic(kafka: Any, request: pytest.FixtureRequest) -> str:
    name = request.node.name.replace("[", "-").replace("]", "")
    kafka.create_topic(name, partitions=2)
    return name


# ---- names and types ------------------------------------------------------------------------------------------------


@pytest.mark.needs("ruff")
def test_the_types_are_those_of_the_asynchronous_clients() -> None:
    """M12: mypy and editors read the generated file."""
    assert stub() == PATH.read_text(), "the clients have changed: run `python tests/clients/blocking_stubs.py`"


@pytest.mark.parametrize("name", sorted(set(CLASSES) - INNER))
def test_each_public_method_is_there_with_its_signature_and_docstring(name: str) -> None:
    asynchronous, made = getattr(clients, name), getattr(blocking, name)
    assert made.__name__ == name
    assert "async with" not in made.__doc__
    for method, _ in inspect.getmembers(asynchronous, inspect.isfunction):
        if method.startswith("_"):
            continue
        original, blocks = getattr(asynchronous, method), getattr(made, method)
        if isinstance(original, property):
            assert (blocks.__doc__, type(blocks)) == (original.__doc__, property)
            continue
        assert not inspect.iscoroutinefunction(blocks)
        assert "await " not in (blocks.__doc__ or "")
        if method != "start":
            assert inspect.signature(blocks) == inspect.signature(original)
    assert hasattr(made, "__next__") == hasattr(asynchronous, "__anext__")


# ---- the clients ----------------------------------------------------------------------------------------------------


def test_records_are_produced_consumed_and_administered_without_asyncio(kafka: Any, topic: str) -> None:
    """M12: one script with all four clients; the cluster of `odradek.testing` makes them."""
    with kafka.producer() as producer:
        sent = [producer.send(topic, b"%d" % number, partition=0) for number in range(10)]
        producer.flush()
        assert [each.result(0).offset for each in sent] == list(range(10))
        assert not sent[0].cancel()
        assert producer.partitions_for(topic) == (0, 1)
        with pytest.raises(KafkaError, match="has no partition 7"):
            producer.send(topic, b"v", partition=7)
    with kafka.consumer(topic, group_id=topic, enable_auto_commit=False) as consumer:
        assert [next(consumer).value for _ in range(3)] == [b"0", b"1", b"2"]
        consumer.commit()
        assert consumer.state is clients.ConsumerState.MEMBER
        assert [record.value for record in consumer.poll(10_000)] == [b"%d" % number for number in range(3, 10)]
        assert consumer.poll(0) == []
        assert consumer.assignment() == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    with kafka.admin() as admin:
        found = admin.list_group_offsets([topic])[topic]
        assert found[TopicPartition(topic, 0)].offset == 3
        reader = admin.generation_reader(topic)
        assert reader.read() == reader.generation == 2
    with kafka.simple_consumer() as simple:
        assert [record.value for record in simple.read((topic, 0), 4, 7)] == [b"4", b"5", b"6"]
        records = simple.read((topic, 0), 0)
        assert next(records).value == b"0"
        records.close()


def test_a_transaction_is_a_with_block(kafka: Any, topic: str) -> None:
    """X1: an error in the block aborts, its end commits."""
    with kafka.producer(transactional_id=topic) as producer:
        with pytest.raises(LookupError), producer.transaction():
            producer.send(topic, b"aborted", partition=0).result(60)
            raise LookupError
        with producer.transaction():
            producer.send(topic, b"committed", partition=0)
    with kafka.consumer(topic, isolation_level="read_committed") as consumer:
        assert [record.value for record in consumer.poll(60_000)] == [b"committed"]


def test_tables_are_sent_and_their_offsets_awaited(kafka: Any, topic: str) -> None:
    """M12: futures inside of results are those of threads, too."""
    pyarrow = pytest.importorskip("pyarrow")
    with kafka.producer() as producer:
        (sent,) = producer.send_arrow(pyarrow.table({"value": [b"a", b"b"]}), topic, partition=1)
        assert sent.offsets.result(60).tolist() == [0, 1]
        assert sent.partition == (topic, 1)


def test_a_client_works_beside_a_running_loop_and_in_several_threads(kafka: Any, topic: str) -> None:
    """M12: as in a notebook."""
    with kafka.producer() as producer:

        async def cell() -> int:
            return producer.send(topic, b"v").result().partition

        assert asyncio.run(cell()) in {0, 1}
        threads = [threading.Thread(target=lambda: producer.send(topic, b"v", partition=1)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
    with kafka.simple_consumer() as simple:
        assert sum(simple.end_offsets([(topic, 0), (topic, 1)]).values()) == 5


def test_rebalance_callbacks_run_in_the_callers_thread_inside_poll(kafka: Any, topic: str) -> None:
    """M12: callbacks may call the consumer themselves, as in Kafka."""
    calls: list[tuple[str, Any, threading.Thread]] = []
    with kafka.producer() as producer:
        for number in range(4):
            producer.send(topic, b"%d" % number, partition=0).result()
    consumer = kafka.consumer(group_id=topic, enable_auto_commit=False)

    def assigned(partitions: Any) -> None:
        calls.append(("assigned", partitions, threading.current_thread()))
        consumer.seek((topic, 0), 2)

    def revoked(partitions: Any) -> None:
        calls.append(("revoked", partitions, threading.current_thread()))
        consumer.commit()

    with consumer:
        consumer.subscribe([topic], on_partitions_assigned=assigned, on_partitions_revoked=revoked)
        assert next(consumer).value == b"2"
    both = (TopicPartition(topic, 0), TopicPartition(topic, 1))
    assert calls == [(name, both, threading.current_thread()) for name in ("assigned", "revoked")]
    with kafka.admin() as admin:
        assert admin.list_group_offsets([topic])[topic][both[0]].offset == 3


def test_an_error_of_a_callback_is_raised_by_poll(kafka: Any, topic: str) -> None:
    def assigned(_: Any) -> None:
        raise ValueError("not these")

    with kafka.consumer(group_id=topic) as consumer:
        consumer.subscribe([topic], on_partitions_assigned=assigned)
        with pytest.raises(ValueError, match="not these"):
            consumer.poll()


def test_errors_of_constructors_and_calls_are_raised_as_they_are() -> None:
    with pytest.raises(ConfigurationError, match="did you mean linger_ms"):
        blocking.Producer(linger=1)
    with pytest.raises(AttributeError, match="'Producer' object has no attribute 'sendd'"):
        blocking.Producer("b:9092").sendd  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'Nobody'"):
        blocking.Nobody  # type: ignore[attr-defined]  # noqa: B018


# ---- interruptions --------------------------------------------------------------------------------------------------


class Client:
    """A client whose calls do what the tests need."""

    def __init__(self) -> None:
        self.cancelled = 0

    async def start(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def nothing(self) -> None:
        pass

    async def notes_where_its_task_is_freed(self, threads: list[str]) -> None:
        weakref.finalize(asyncio.current_task(), lambda: threads.append(threading.current_thread().name))

    async def waits_a_turn(self) -> None:
        await asyncio.sleep(0)

    async def interrupted(self) -> None:
        """Send the main thread SIGINT while it waits, and wait without end."""
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.cancelled += 1

    async def called(self, callback: Callable[[], Awaitable[None] | None]) -> None:
        try:
            result = callback()
            if result is not None:
                await result
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    async def numbers(self) -> AsyncIterator[int]:
        try:
            for number in range(3):
                yield number
        finally:
            self.cancelled += 1


@pytest.fixture
def client() -> Iterator[Any]:
    made = blocking_class(Client)()
    with made:
        yield made


def test_ctrl_c_cancels_the_call_that_it_interrupts(client: Any) -> None:
    """M12: KeyboardInterrupt is raised after the call has ended, and the client works on."""
    for count in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            client.interrupted()
        assert client.cancelled == count


@pytest.mark.parametrize("name", ["nothing", "waits_a_turn"])
def test_ctrl_c_as_a_call_ends_waits_for_nothing_more(client: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """M12: the call is over, and the message that says so was received, but not yet heeded."""
    received = loop_thread._Call._next_message

    def interrupted(call: Any) -> Any:
        monkeypatch.undo()
        assert received(call) is None
        raise KeyboardInterrupt

    monkeypatch.setattr(loop_thread._Call, "_next_message", interrupted)
    with pytest.raises(KeyboardInterrupt):
        getattr(client, name)()
    assert getattr(client, name)() is None


def test_a_calls_task_is_freed_by_the_loops_thread(client: Any) -> None:
    """M12: asyncio's weak reference to it has a callback; Python drops a Ctrl-C that arrives in such a callback."""
    threads: list[str] = []
    client.notes_where_its_task_is_freed(threads)
    client.waits_a_turn()
    assert threads == ["odradek-clients"]


def test_ctrl_c_in_a_callback_cancels_the_call_around_it(client: Any) -> None:
    def callback() -> None:
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        client.called(callback=callback)
    assert client.cancelled == 1


def test_a_coroutine_function_as_a_callback_runs_on_the_loop(client: Any) -> None:
    threads = []

    async def callback() -> None:
        await asyncio.sleep(0)
        threads.append(threading.current_thread().name)

    client.called(callback=callback)
    assert threads == ["odradek-clients"]


def test_an_iterator_that_is_left_early_is_closed(client: Any) -> None:
    assert list(client.numbers()) == [0, 1, 2]
    for number in client.numbers():
        assert number == 0
        break
    assert client.cancelled == 2


def test_a_blocking_call_on_the_clients_own_loop_is_refused(client: Any) -> None:
    """It would wait for itself."""

    async def callback() -> None:
        client.numbers().__next__()

    with pytest.raises(RuntimeError, match="would wait for itself; call it from another thread"):
        client.called(callback=callback)


# ---- processes ------------------------------------------------------------------------------------------------------


def python(script: str, *arguments: str, options: tuple[str, ...] = ()) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, *options, "-c", SCRIPT + script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_clients_that_were_not_closed_end_with_the_interpreter_without_a_warning(kafka: Any, topic: str) -> None:
    """M12: a script may simply end."""
    script = (
        "p = Producer(servers).start(); p.send(sys.argv[2], b'v', partition=0).result(); "
        "c = Consumer(sys.argv[2], bootstrap_servers=servers, group_id=sys.argv[2]).start(); c.poll(0); "
        "i = SimpleConsumer(servers).start().read((sys.argv[2], 0), 0, 9); next(i); print('end')"
    )
    ended = python(script, kafka.bootstrap_servers, topic, options=("-W", "error"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "end\n", "")


def test_a_blocking_producer_that_was_not_closed_flushes_when_the_interpreter_ends(kafka: Any, topic: str) -> None:
    script = (
        "p = Producer(servers, linger_ms=3_600_000, delivery_timeout_ms=7_200_000).start(); p.send(sys.argv[2], b'v')"
    )
    ended = python(script, kafka.bootstrap_servers, topic, options=("-W", "error"))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    with kafka.simple_consumer() as consumer:
        assert sum(consumer.end_offsets([(topic, 0), (topic, 1)]).values()) == 1


def test_a_client_is_refused_after_a_fork_and_the_fork_may_have_its_own(kafka: Any, topic: str) -> None:
    """M12: the thread of the loop is not in the new process."""
    script = """
import os
producer = Producer(servers).start()
child = os.fork()
if child == 0:
    try:
        producer.send(sys.argv[2], b"lost")
    except RuntimeError as error:
        print(error)
    with Producer(servers) as own:
        own.send(sys.argv[2], b"child").result()
    sys.exit(7)
print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
producer.send(sys.argv[2], b"parent").result()
producer.close()
"""
    ended = python(script, kafka.bootstrap_servers, topic, options=("-W", "ignore::DeprecationWarning"))
    said, child = ended.stdout.splitlines()
    assert "cannot be used in its fork" in said
    assert "create a client after the fork" in said
    assert (child, ended.returncode, ended.stderr) == ("child 7", 0, "")
    with kafka.simple_consumer() as simple:
        assert sum(simple.end_offsets([(topic, 0), (topic, 1)]).values()) == 2
