"""Target: whole requests of any API and version, in a broker in virtual time: from a connection's bytes to its replies.

An input is a stream of frames, as in `fuzz_handshakes`, on a connection of its own. A broker serves up to
`_MOST_INPUTS` of them, so that its start is not most of the work. A finding prints the inputs that show it on a
new broker.
"""

import asyncio
import importlib
import logging
import random
import struct
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final

from conformance.fuzz.client_requests import recorded
from conformance.fuzz.fuzz_batches import random_batch
from conformance.fuzz.fuzz_engine import Target
from conformance.fuzz.fuzz_handshakes import frames_of, mutate_frames, stream_of
from conformance.fuzz.fuzz_messages import mutate_body
from conformance.fuzz.schema_samples import change, sample
from odradek.broker.apis import APIS
from odradek.model import KafkaError
from odradek.protocol.api import ApiKey
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.messages.headers import decode_request_header, decode_response_header, encode_request_header
from odradek.protocol.messages.message_codec import decode_response, encode_request
from odradek.protocol.messages.schemas import load_request_schema
from odradek.simulation.world import World

for _api in APIS.values():
    importlib.import_module(
        f"odradek.broker.handlers.{_api.module}"
    )  # now, because atheris instruments what is imported now

TOPIC: Final = "name"
"""The value of most random strings of `sample`: a topic, a group and a transactional id have this name."""
_CONFIG: Final = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
_TOPICS: Final = {TOPIC, "__consumer_offsets", "__transaction_state"}
_MOST_TOPICS: Final = 12
_MOST_INPUTS: Final = 40
_MOST_FRAMES: Final = 12
_TOGETHER: Final = 6
_PATIENCE_S: Final = 10.0
"""Virtual seconds without a reply, after which none is expected: some requests wait for other clients."""
_PAUSES_S: Final = (0.0, 0.0, 0.3, 12.0)
"""Virtual seconds after the last request, by the first byte of the input."""
_LIMIT_S: Final = 100_000.0
_LIES: Final = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80", b"")
_BATCH: Final = bytes(World.batch(b"a", b"b"))
_FLOWS: Final = (
    (ApiKey.CREATE_TOPICS, ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS, ApiKey.DELETE_RECORDS),
    (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH),
    (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE),
    (ApiKey.INIT_PRODUCER_ID, ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN),
    (ApiKey.ALTER_PARTITION_REASSIGNMENTS, ApiKey.CREATE_PARTITIONS, ApiKey.INCREMENTAL_ALTER_CONFIGS),
)
"""Requests whose effects meet."""


def hostile_request(chance: random.Random, batch: bytes, key: int | None = None) -> bytes:
    """A frame: an API and version that are served, fields changed, at times bytes changed."""
    api = chance.choice(list(APIS.values())) if key is None else APIS[ApiKey(key)]
    version = chance.choice(list(api.served))
    message, _ = sample(load_request_schema(api.key, version), chance)
    for _ in range(chance.choice((0, 1, 3, 8, 20))):
        change(message, chance)
    _fill(message, chance, batch)
    try:
        body = encode_request(api.key, version, message)
    except (struct.error, TypeError, AttributeError, KeyError, OverflowError):
        body = b""  # a change that cannot be written
    frame = encode_request_header(api.key, version, chance.randrange(1 << 31), chance.choice((None, "", "c"))) + body
    if chance.random() < 0.25:
        place = chance.randrange(len(frame))
        lie = chance.choice(_LIES)
        frame = frame[:place] + lie + frame[place + chance.choice((0, 1, 4)) :]
    return frame


def _fill(message: Any, chance: random.Random, batch: bytes) -> None:
    """Names and numbers that exist, and batches instead of noise: else most requests end at their first look-up."""
    for key, value in message.items() if isinstance(message, dict) else ():
        if isinstance(value, dict):
            _fill(value, chance, batch)
        elif isinstance(value, list):
            for each in value:
                _fill(each, chance, batch)
        elif isinstance(value, bytes):
            message[key] = chance.choice((batch, batch, value, random_batch(chance), batch[:-1], batch + batch, b""))
        elif isinstance(value, str) and chance.random() < 0.6:
            message[key] = TOPIC
        elif isinstance(value, int) and not isinstance(value, bool) and chance.random() < 0.6:
            message[key] = chance.choice((0, 0, 1, -1, 100))


# ---- one input ------------------------------------------------------------------------------------------------------


class _Errors(logging.Handler):
    """Keeps the records with an exception: what a handler did not expect."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.found.append(logging.Formatter().format(record))


@contextmanager
def _no_errors() -> Iterator[None]:
    """Keep the log of the block from being printed, and raise `AssertionError` if it has an exception."""
    errors, logger = _Errors(), logging.getLogger("odradek")
    was, logger.propagate, level = logger.propagate, False, logger.level
    logger.addHandler(errors)
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(errors)
        logger.propagate = was
        logger.setLevel(level)
    assert not errors.found, "\n".join(errors.found)


class _Served:
    """A broker with its topic and its coordinators, and the inputs that it has had."""

    def __init__(self) -> None:
        self.inputs: list[bytes] = []
        self._world = World(1, _CONFIG, limit_s=_LIMIT_S)
        self._closing = ExitStack()
        self._run = self._closing.enter_context(self._world.simulation.runs())
        self._run(self._prepare())

    async def _prepare(self) -> None:
        await self._world.start()
        client = await self._world.client()
        await client.create_topic(TOPIC, 2)
        for kind in (0, 1):
            await client.ask(ApiKey.FIND_COORDINATOR, {"key_type": kind, "coordinator_keys": [TOPIC]}, 4)
        client.close()

    @property
    def is_worn(self) -> bool:
        """Whether the next input needs another broker: this one lost a topic, has many, or has had its inputs."""
        topics = {partition.topic_partition.topic for partition in self._world.led}
        return len(self.inputs) >= _MOST_INPUTS or not topics >= _TOPICS or len(topics) > _MOST_TOPICS

    def serve(self, data: bytes) -> None:
        """Play an input. Raises what it breaks."""
        self.inputs.append(data)
        self._run(_serve(frames_of(data)[:_MOST_FRAMES], _PAUSES_S[data[0] % len(_PAUSES_S)], self._world))

    def stop(self) -> None:
        """Stop the broker. Raises what tasks raised."""
        with self._closing:
            self._run(self._world.stop())

    def abandon(self) -> None:
        """Cancel what still runs after a finding."""
        with suppress(Exception):
            self._closing.close()


_RUNNING: Final[list[_Served]] = []
"""The broker that the next input is for; none at first, and after a finding."""


def check_requests(data: bytes) -> None:
    """Requests break no handler, their replies are of the schema, and the broker goes on to serve."""
    if not data:
        return
    if not _RUNNING:
        _RUNNING.append(_Served())
    served = _RUNNING.pop()
    try:
        with _no_errors():
            served.serve(data)
            if served.is_worn:
                served.stop()
            else:
                _RUNNING.append(served)
    except Exception as error:
        served.abandon()
        error.add_note(f"to repeat it: fuzz_requests.replay({_shortest(served.inputs)!r})")
        raise


def stop_broker() -> None:
    """Stop the broker that waits for the next input."""
    while _RUNNING:
        _RUNNING.pop().stop()


def replay(inputs: Sequence[bytes]) -> None:
    """Play inputs on a new broker, as `check_requests` does."""
    served = _Served()
    try:
        with _no_errors():
            for data in inputs:
                served.serve(data)
            served.stop()
    finally:
        served.abandon()


def _shortest(inputs: Sequence[bytes]) -> Sequence[bytes]:
    """Return the last input if it fails alone, else those of the inputs without which it does not fail."""
    if _fails(inputs[-1:]):
        return inputs[-1:]
    kept = list(inputs)
    for data in inputs[:-1]:
        fewer = [each for each in kept if each is not data]
        if _fails(fewer):
            kept = fewer
    return kept


def _fails(inputs: Sequence[bytes]) -> bool:
    try:
        replay(inputs)
    except Exception:
        return True
    return False


async def _serve(frames: list[bytes], pause_s: float, world: World) -> None:
    peer = await world.client("peer")
    sent: list[bytes] = []
    for frame in frames:
        if peer.is_closed:
            break
        peer.send_bytes(frame)
        sent.append(frame)
        await world.pass_time(0.05)
    await world.pass_time(pause_s)
    replies: list[bytes] = []
    with suppress(TimeoutError):
        while len(replies) < len(sent):
            async with asyncio.timeout(_PATIENCE_S):
                if (reply := await peer.receive()) is None:
                    break
            replies.append(reply)
    _check_replies(replies, sent)
    peer.close()
    await world.pass_time(0.1)
    assert world.broker.server.unanswered_bytes == 0
    neighbour = await world.client()
    answer = await neighbour.ask(ApiKey.DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": False}, 0)
    assert answer.error_code == 0
    neighbour.close()


def _check_replies(replies: list[bytes], sent: list[bytes]) -> None:
    """Each reply is of one of the requests, in their order, and can be decoded in its version."""
    waiting = iter(sent)
    for reply in replies:
        refused: MalformedMessageError | None = None
        for frame in waiting:
            if reply[:4] == struct.pack(">i", decode_request_header(frame).correlation_id):
                try:
                    _decode_reply(frame, reply)
                except MalformedMessageError as error:  # an earlier request with this id may have no reply
                    refused = error
                else:
                    break
        else:
            raise refused or AssertionError("a reply of no request")


def _decode_reply(frame: bytes, reply: bytes) -> None:
    header = decode_request_header(frame)
    version = header.api_version
    if header.api_key == ApiKey.API_VERSIONS and version not in APIS[ApiKey.API_VERSIONS].served:
        version = 0
    _, place = decode_response_header(header.api_key, version, reply)
    decode_response(header.api_key, version, reply, place)


# ---- inputs ---------------------------------------------------------------------------------------------------------


def request_seeds() -> Iterator[bytes]:
    """Yield requests of existing clients, all APIs, a few in each input, and requests whose effects meet."""
    chance, keys = random.Random(1), list(APIS)
    for frames in recorded().values():
        for place in range(0, len(frames), _MOST_FRAMES):
            yield stream_of(frames[place : place + _MOST_FRAMES])
    for flow in (*_FLOWS, *(keys[place : place + _TOGETHER] for place in range(0, len(keys), _TOGETHER))):
        yield stream_of([hostile_request(chance, _BATCH, api) for api in flow])


def _changed(frame: bytes, chance: random.Random) -> bytes:
    """Change a field, or a length in the bytes."""
    try:
        header = decode_request_header(frame)
        api = APIS[ApiKey(header.api_key)]
    except (KafkaError, ValueError, KeyError):
        return hostile_request(chance, _BATCH)
    if header.api_version not in api.served:
        return hostile_request(chance, _BATCH, api.key)
    place = header.body_offset
    return frame[:place] + mutate_body(api.key, header.api_version, 0, frame[place:], chance)


def mutate_requests(data: bytes, chance: random.Random) -> bytes | None:
    """Add, replace, repeat, drop or change a request."""
    return mutate_frames(data, chance, lambda: hostile_request(chance, _BATCH), _changed)


TARGETS = {
    "requests": Target(
        check=check_requests,
        seeds=request_seeds,
        mutate=mutate_requests,
        finish=stop_broker,
        reaches={"odradek.broker.serving.dispatch": 0.65, "odradek.wire.connection": 0.45},
        runs=150,
        longest=8192,
    ),
}
