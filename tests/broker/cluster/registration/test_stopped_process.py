"""A broker's process that is stopped past its session, with what clients sent it waiting in its sockets (M1, M9)."""

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path

from odradek.metadata import paths
from odradek.model import ErrorCode, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.records import encode_batch
from odradek.runtime import system_runtime
from odradek.simulation.wire_client import BlockingWireClient, produce_body
from odradek.stores import SqliteStore
from odradek.testing import eventually
from odradek.testing.servers.odradek_process import ServedBroker

DEADLINE_S = 60
SESSION_MS = 2_000
VERSION = 9


def send_produce(client: BlockingWireClient, topic: str, value: bytes, acks: int) -> None:
    records = encode_batch([(1_700_000_000_000, None, value, ())])
    client.send(ApiKey.PRODUCE, produce_body(topic, records, version=VERSION, acks=acks, timeout_ms=10_000), VERSION)


def produce(client: BlockingWireClient, topic: str, value: bytes, acks: int) -> int:
    send_produce(client, topic, value, acks)
    return client.produce_response().error_code


async def gone(store: SqliteStore, path: str) -> None:
    """Return when the watch said so and the node is gone."""
    changed = asyncio.Event()
    watch = store.watch_data(path, changed.set)
    async with asyncio.timeout(DEADLINE_S):
        while await store.get(path) is not None:
            await changed.wait()
            changed.clear()
    watch.cancel()


def test_a_process_that_was_stopped_past_its_session_acknowledges_nothing_of_what_waited_for_it(tmp_path: Path) -> None:
    metadata = tmp_path / "metadata.sqlite"
    options = {"zookeeper.session.timeout.ms": str(SESSION_MS)}

    async def bury() -> None:
        """Act as the other processes: expire the stopped one's session, and let another broker lead its partition."""
        store = SqliteStore(str(metadata), system_runtime())
        await gone(store, paths.broker(0))
        path = paths.partition_state(TopicPartition("a", 0))
        state = json.loads((await store.get(path)).data)
        state |= {"leader": 9, "isr": [9], "leader_epoch": state["leader_epoch"] + 1}
        await store.set(path, json.dumps(state).encode())
        await store.close()

    broker = ServedBroker(tmp_path / "data", metadata=f"sqlite:///{metadata}", options=options)
    with broker, ExitStack() as stack:
        clients = [stack.enter_context(BlockingWireClient(broker.bootstrap_servers)) for _ in range(6)]
        assert clients[0].create_topic("a").error_code == 0
        eventually(lambda: all(produce(client, "a", b"before", acks=1) == 0 for client in clients), within_s=DEADLINE_S)
        broker.pause()
        for number, client in enumerate(clients):
            send_produce(client, "a", b"while it was stopped", acks=(1, -1)[number % 2])
        asyncio.run(bury())
        broker.resume()
        refused = [client.produce_response().error_code for client in clients]
        assert refused == [ErrorCode.not_leader_or_follower] * len(clients)
        # One that was told to try again may have been created all the same.
        created = 0, ErrorCode.topic_already_exists
        eventually(lambda: clients[0].create_topic("b").error_code in created, within_s=DEADLINE_S)
        eventually(lambda: produce(clients[0], "b", b"after", acks=-1) == 0, within_s=DEADLINE_S)
        assert "leads its partitions again" in broker.errors.read_text()
