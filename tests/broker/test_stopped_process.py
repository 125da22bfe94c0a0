"""A broker's process that is stopped past its session, with what clients sent it waiting in its sockets (M1, M9)."""

import asyncio
import json
import socket
import struct
from contextlib import ExitStack, closing
from pathlib import Path

from odradek.metadata import paths
from odradek.model import ErrorCode, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.headers import decode_response_header, encode_request_header
from odradek.protocol.messages import decode_response, encode_request
from odradek.protocol.produce import ProduceTopic, decode_produce_response, encode_produce_request
from odradek.protocol.records import encode_batch
from odradek.runtime import system_runtime
from odradek.stores import SqliteStore
from odradek.testing import eventually
from odradek.testing.process import ServedBroker

DEADLINE_S = 60
SESSION_MS = 2_000
VERSION = 9


class Client:
    """One connection, blocking."""

    def __init__(self, address: str) -> None:
        host, port = address.split(":")
        self._socket = socket.create_connection((host, int(port)), timeout=DEADLINE_S)

    def send(self, api: int, version: int, body: bytes) -> None:
        payload = encode_request_header(api, version, 1, "test") + body
        self._socket.sendall(struct.pack(">i", len(payload)) + payload)

    def receive(self) -> bytes:
        size = struct.unpack(">i", self._socket.recv(4, socket.MSG_WAITALL))[0]
        return self._socket.recv(size, socket.MSG_WAITALL)

    def close(self) -> None:
        self._socket.close()

    def create_topic(self, name: str) -> int:
        topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        self.send(
            ApiKey.CREATE_TOPICS, 5, encode_request(ApiKey.CREATE_TOPICS, 5, {"topics": [topic], "timeout": 10_000})
        )
        frame = self.receive()
        _, offset = decode_response_header(ApiKey.CREATE_TOPICS, 5, frame)
        return int(decode_response(ApiKey.CREATE_TOPICS, 5, frame, offset).topics[0].error_code)

    def send_produce(self, topic: str, value: bytes, acks: int) -> None:
        records = encode_batch([(1_700_000_000_000, None, value, ())])
        pieces = encode_produce_request(
            VERSION, [ProduceTopic(topic, None, [(0, records)])], acks=acks, timeout_ms=10_000, transactional_id=None
        )
        self.send(ApiKey.PRODUCE, VERSION, b"".join(pieces))

    def produced(self) -> int:
        frame = self.receive()
        _, offset = decode_response_header(ApiKey.PRODUCE, VERSION, frame)
        return int(decode_produce_response(VERSION, frame, offset).topics[0].partitions[0].error_code)

    def produce(self, topic: str, value: bytes, acks: int) -> int:
        self.send_produce(topic, value, acks)
        return self.produced()


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
        """What other processes do: they take the stopped one for dead, and give its partition to another broker."""
        store = SqliteStore(str(metadata), system_runtime())
        await gone(store, paths.broker(0))
        path = paths.partition_state(TopicPartition("a", 0))
        state = json.loads((await store.get(path)).data)
        state |= {"leader": 9, "isr": [9], "leader_epoch": state["leader_epoch"] + 1}
        await store.set(path, json.dumps(state).encode())
        await store.close()

    broker = ServedBroker(tmp_path / "data", metadata=f"sqlite:///{metadata}", options=options)
    with broker, ExitStack() as stack:
        clients = [stack.enter_context(closing(Client(broker.bootstrap_servers))) for _ in range(6)]
        assert clients[0].create_topic("a") == 0
        eventually(lambda: all(client.produce("a", b"before", acks=1) == 0 for client in clients), within_s=DEADLINE_S)
        broker.pause()
        for number, client in enumerate(clients):
            client.send_produce("a", b"while it was stopped", acks=(1, -1)[number % 2])
        asyncio.run(bury())
        broker.resume()
        refused = [client.produced() for client in clients]
        assert refused == [ErrorCode.not_leader_or_follower] * len(clients)
        # One that was told to try again may have been created all the same.
        created = 0, ErrorCode.topic_already_exists
        eventually(lambda: clients[0].create_topic("b") in created, within_s=DEADLINE_S)
        eventually(lambda: clients[0].produce("b", b"after", acks=-1) == 0, within_s=DEADLINE_S)
        assert "leading again" in broker.errors.read_text()
