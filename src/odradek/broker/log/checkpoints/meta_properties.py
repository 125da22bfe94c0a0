"""The formats of `meta.properties` and `partition.metadata`: the broker, cluster or topic id of a directory.

```
meta.properties           version=1                       in each data directory; Java properties
                          node.id=1
                          cluster.id=mEgkBPdUTcyZ9uBFk7hDJQ
                          directory.id=cTs6hwuyTyWRqwTXQvbmwA    (22 characters of URL-safe base64; KIP-858)
partition.metadata        version: 0                      in each partition's folder (KIP-516)
                          topic_id: 7v5cnkUySiqEcy2UPpXUlQ    (also base64)
.kafka_cleanshutdown      {"version":0,"brokerEpoch":-1}  exists only after a clean shutdown; its content is ignored
```
`meta.properties` is valid if its version is 0 or 1 and its numbers parse; version 0, of brokers with ZooKeeper, has
`broker.id` instead of `node.id`. Every key may be missing. `partition.metadata` is valid if its version is 0 and the id
has 16 bytes.
"""

import base64
import binascii
import uuid
from typing import Final

from msgspec import Struct

from odradek.broker.log.checkpoints.checkpoint_file import parse_number, split_lines
from odradek.broker.log.errors import DamagedFileError
from odradek.config.properties import parse_properties
from odradek.model import ConfigurationError
from odradek.runtime import Disk

META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
CLEAN_SHUTDOWN_DATA: Final = b'{"version":0,"brokerEpoch":-1}'
LOCK: Final = ".lock"


class DirectoryIdentity(Struct, frozen=True, kw_only=True):
    """The ids in the `meta.properties` of a data directory; each is None if unknown."""

    broker_id: int | None
    cluster_id: str | None
    directory_id: str | None = None


def is_data_directory(disk: Disk, path: str) -> bool:
    """Return whether the folder at `path` is a broker's data directory, and so never a log."""
    return disk.exists(f"{path}/{META_PROPERTIES}")


def encode_meta_properties(broker_id: int, cluster_id: str, directory_id: str) -> bytes:
    return f"version=1\nnode.id={broker_id}\ncluster.id={cluster_id}\ndirectory.id={directory_id}\n".encode()


def decode_meta_properties(data: bytes, path: str) -> DirectoryIdentity:
    """Parse `meta.properties`. Raises `DamagedFileError` if it is not valid."""
    for byte, line in split_lines(data):
        if "\ufffd" in line:
            raise DamagedFileError(path, byte, "has a line that is not text")
    try:
        values = parse_properties(data.decode())
    except ConfigurationError as error:
        raise DamagedFileError(path, 0, f"cannot be read: {error}") from None
    version, broker_id = values.get("version", "0").strip(), values.get("broker.id", values.get("node.id"))
    if version not in {"0", "1"}:
        raise DamagedFileError(path, _line_of(data, "version"), f"has version {version}; this release reads 0 and 1")
    try:
        number = None if broker_id is None else parse_number(broker_id.strip(), 32)
    except ValueError:
        byte = _line_of(data, "broker.id", "node.id")
        raise DamagedFileError(path, byte, f"has the broker id {broker_id!r}, which is not a number") from None
    return DirectoryIdentity(
        broker_id=number, cluster_id=values.get("cluster.id"), directory_id=values.get("directory.id")
    )


def _line_of(data: bytes, *keys: str) -> int:
    """Return the byte position of the line that sets one of `keys`, or the end of the file."""
    return next((line.byte for line in split_lines(data) if line.text.lstrip().startswith(keys)), len(data))


def encode_partition_metadata(topic_id: uuid.UUID) -> bytes:
    """Return the content of `partition.metadata`; as in Kafka, the last line has no newline."""
    return f"version: 0\ntopic_id: {encode_uuid(topic_id)}".encode()


def encode_uuid(value: uuid.UUID) -> str:
    """Return an id as Kafka writes it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_partition_metadata(data: bytes, path: str) -> uuid.UUID:
    """Return the topic id. Raises `DamagedFileError` if the file is not valid."""
    lines = dict(line.partition(":")[::2] for line in data.decode(errors="replace").splitlines())
    text = lines.get("topic_id", "").strip()
    try:
        topic_id = uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
    except (ValueError, binascii.Error):
        raise DamagedFileError(path, _line_of(data, "topic_id"), "has no topic id") from None
    version = lines.get("version", "").strip()
    if version != "0":
        raise DamagedFileError(path, _line_of(data, "version"), f"has version {version!r}; this release reads 0")
    return topic_id
