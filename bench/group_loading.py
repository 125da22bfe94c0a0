"""`odradek bench groups loading`: from a broker's start until it has loaded committed offsets, beside Apache Kafka.

Both logs get the same batches by Produce requests to `__consumer_offsets`, which brokers accept from the client id of
Kafka's admin client. Every run starts the broker in a new process.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from bench.clients.members import await_coordinator
from bench.measure import Aim, Row, cpu_seconds, peak_resident_mib, resident_mib, rounds
from bench.peers.sides import BrokerProcess, Side, running
from odradek.broker.groups.machine.records import GroupRecordCodec, OffsetCommitRecord
from odradek.model import ErrorCode, TopicPartition
from odradek.model.names import ADMIN_CLIENT_ID, OFFSETS_TOPIC
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.internal_records.group_records import OffsetCommitValue
from odradek.runtime import SystemNetwork
from odradek.simulation.wire_client import BlockingWireClient, WireClient

AT_MOST_KAFKAS: Final = Aim(1, at_most=True)
_OPTIONS: Final = {"offsets.topic.num.partitions": "1"}
_PARTITIONS: Final = 100
"""Partitions of each group."""
_COMMIT: Final = 10
"""Offsets of one commit, which is one batch."""
_IN_FLIGHT: Final = 64
_POLL_S: Final = 0.005
_OFFSET_FETCH_VERSION: Final = 5
_TOPIC: Final = "orders"
_LAST_OFFSET: Final = 1_000_000
_UNITS: Final = {
    "first": "s from the start to the first OffsetFetch",
    "loading": "s of that after it serves",
    "cpu": "CPU s until then",
    "mib": "MiB resident then",
    "peak": "MiB at the most",
}
_NOT_YET: Final = {
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_coordinator,
}


def loading_rows(sides: Sequence[Side], *, commits: int, keys: int, count: int) -> Iterator[Row]:
    """Measure the loading of `commits` committed offsets with `keys` different keys (group and partition)."""
    with ExitStack() as stack:
        brokers = {side.name: stack.enter_context(side.broker(_OPTIONS)) for side in sides}
        groups = max(keys // _PARTITIONS, 1)
        for broker in brokers.values():
            with running(broker):
                asyncio.run(_fill(broker.bootstrap_servers, commits, groups))
                broker.stop()
        figures = rounds(count, {name: partial(_load, broker, groups) for name, broker in brokers.items()})
    what = f"{commits:,} offsets committed, {keys:,} different ones"
    ours, peer = (side.name for side in sides)
    for name, unit in _UNITS.items():
        values = {side: by[name] for side, by in figures.items()}
        yield Row(what=what, unit=unit, figures=values, of=ours, to=peer, aim=AT_MOST_KAFKAS)


async def _fill(address: str, commits: int, groups: int) -> None:
    await await_coordinator(address, _group(0))
    host, port = address.rsplit(":", 1)
    client = await WireClient.connect(SystemNetwork(), host, int(port), client_id=ADMIN_CLIENT_ID)
    sent = 0
    for batch in _batches(commits, groups):
        client.send_produce(OFFSETS_TOPIC, batch)
        sent += 1
        if sent > _IN_FLIGHT:
            await _acknowledged(client)
    for _ in range(min(sent, _IN_FLIGHT)):
        await _acknowledged(client)
    client.close()


async def _acknowledged(client: WireClient) -> None:
    answer = (await client.produce_response()).topics[0].partitions[0]
    if answer.error_code != ErrorCode.none:
        raise RuntimeError(f"a commit was refused: {answer}")


def _batches(commits: int, groups: int) -> Iterator[bytearray]:
    """Yield batches of ten offsets; groups take turns, so that every group is among the last commits."""
    encode, now_ms = GroupRecordCodec().encode, int(time.time() * 1000)
    for number in range(0, commits, _COMMIT):
        turn, group = divmod(number // _COMMIT, groups)
        first = turn * _COMMIT % _PARTITIONS
        value = OffsetCommitValue(offset=_LAST_OFFSET, leader_epoch=0, metadata="", commit_timestamp=now_ms)
        records = [
            OffsetCommitRecord(_group(group), TopicPartition(_TOPIC, partition), value)
            for partition in range(first, first + _COMMIT)
        ]
        yield encode_batch([(now_ms, *encode(each), ()) for each in records])


def _group(number: int) -> str:
    return f"group-of-consumers-{number}"


def _load(broker: BrokerProcess, groups: int) -> dict[str, float]:
    began_s = time.monotonic()
    with running(broker):
        serves_s = time.monotonic()
        _await_offsets(broker.bootstrap_servers, _group(groups - 1))
        first_s = time.monotonic()
        pid = broker.pid
        figures = {"first": first_s - began_s, "loading": first_s - serves_s, "cpu": cpu_seconds(pid)}
        figures |= {"mib": resident_mib(pid), "peak": peak_resident_mib(pid)}
        broker.stop()
    return figures


def _await_offsets(address: str, group_id: str) -> None:
    """Wait until the broker returns the group's last offset."""
    topic = {"name": _TOPIC, "partition_indexes": [0]}
    message = {"group_id": group_id, "topics": [topic]}
    with BlockingWireClient(address, client_id="bench") as client:
        while (answer := client.ask(ApiKey.OFFSET_FETCH, message, _OFFSET_FETCH_VERSION)).error_code in _NOT_YET:
            time.sleep(_POLL_S)
    offset = answer.topics[0].partitions[0].committed_offset
    if answer.error_code != ErrorCode.none or offset != _LAST_OFFSET:
        raise RuntimeError(f"the committed offset of {group_id} is missing: {answer}")
