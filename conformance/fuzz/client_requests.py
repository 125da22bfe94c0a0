"""Requests that existing clients sent to `odradek serve`, in `client_requests.json`: where some targets start from.

The file has one frame for each client, API and version. Tests with such clients record new ones (`recording/`):

    mkdir /tmp/recorded
    PYTHONPATH=conformance/fuzz/recording ODRADEK_RECORDED=/tmp/recorded python -m pytest conformance/interop
    python -m conformance.fuzz.client_requests /tmp/recorded
"""

import importlib.metadata
import json
import socket
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

from odradek.protocol.api import ApiKey
from odradek.protocol.messages.headers import RequestHeader, decode_request_header
from odradek.protocol.messages.message_codec import decode_request

_FILE: Final = Path(__file__).with_suffix(".json")
_CLIENTS: Final = ("aiokafka", "apache-kafka-java", "confluent-kafka-python", "kafka-python", "kgo", "librdkafka")
"""The names by which clients call themselves; librdkafka alone is kcat, kgo is franz-go."""
_WITH_SECRETS: Final = {ApiKey.SASL_AUTHENTICATE, ApiKey.ALTER_USER_SCRAM_CREDENTIALS}
_PLACES: Final = (b"/tmp", b"/root", b"/home", b"/work", socket.gethostname().encode())
_LONGEST: Final = 500


@cache
def recorded() -> dict[str, list[bytes]]:
    """Return the frames of each client and version."""
    return {client: [b64decode(each) for each in frames] for client, frames in json.loads(_FILE.read_text()).items()}


def distinct_requests() -> list[tuple[RequestHeader, bytes]]:
    """Return one frame for each API and version, with its header."""
    found: dict[tuple[int, int], tuple[RequestHeader, bytes]] = {}
    for frame in (frame for frames in recorded().values() for frame in frames):
        header = decode_request_header(frame)
        found.setdefault((header.api_key, header.api_version), (header, frame))
    return list(found.values())


def group_metadata() -> Iterator[tuple[bytes, bytes]]:
    """Yield what members sent through groups: `b"s"` and a subscription, or `b"a"` and an assignment."""
    found = dict.fromkeys(each for frames in recorded().values() for frame in frames for each in _metadata(frame))
    yield from found


def _metadata(frame: bytes) -> Iterator[tuple[bytes, bytes]]:
    header = decode_request_header(frame)
    if header.api_key in {ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP}:
        message: Any = decode_request(header.api_key, header.api_version, frame, header.body_offset)
        if header.api_key == ApiKey.JOIN_GROUP:
            yield from ((b"s", bytes(each.metadata)) for each in message.protocols)
        else:
            yield from ((b"a", bytes(each.assignment)) for each in message.assignments)


def _main(folder: Path) -> None:
    """Add the frames of a recording to the file; those that it has stay."""
    kept = {(client, frame[:4]): frame for client, frames in recorded().items() for frame in frames}
    new: dict[tuple[str, bytes], bytes] = {}
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            name, version, text = json.loads(line)
            name, frame = next((each for each in _CLIENTS if name.startswith(each)), ""), bytes.fromhex(text)
            key = f"{name} {version or importlib.metadata.version(name)}" if name else "", frame[:4]
            if not name or int.from_bytes(frame[:2]) in _WITH_SECRETS or any(place in frame for place in _PLACES):
                continue
            new[key] = max(new.get(key, frame), frame, key=_rank)
    kept = {**new, **kept}
    clients = sorted({client for client, _ in kept})
    content = {
        client: [b64encode(kept[key]).decode() for key in sorted(kept) if key[0] == client] for client in clients
    }
    _FILE.write_text(json.dumps(content, indent=0) + "\n")
    for client, frames in content.items():
        print(f"{client}: {len(frames)} requests")


def _rank(frame: bytes) -> tuple[bool, int]:
    """Prefer the longest of the frames that are not too long."""
    is_short = len(frame) <= _LONGEST
    return is_short, len(frame) if is_short else -len(frame)


if __name__ == "__main__":
    _main(Path(sys.argv[1]))
