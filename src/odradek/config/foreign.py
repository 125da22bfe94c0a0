"""Kafka's broker keys without a counterpart here: some are ignored, others are refused."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from odradek.model import ConfigurationError

_NO_TRANSACTIONS: Final = "there is no transaction coordinator"

IGNORED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "background.threads": "one event loop does this work",
        "inter.broker.protocol.version": "brokers agree on versions by themselves",
        "log.flush.start.offset.checkpoint.interval.ms": (
            "log start offsets are written down with the recovery points, by log.flush.offset.checkpoint.interval.ms"
        ),
        "log.message.format.version": "every log is of the newest format",
        "num.io.threads": "one event loop serves all requests of a broker; start more brokers to use more cores",
        "num.network.threads": "one event loop serves all connections of a broker",
        "queued.max.requests": "a request is served as it is read; queued.max.request.bytes bounds the unanswered ones",
        "transaction.state.log.load.buffer.size": _NO_TRANSACTIONS,
        "transaction.state.log.min.isr": _NO_TRANSACTIONS,
        "transaction.state.log.num.partitions": _NO_TRANSACTIONS,
        "transaction.state.log.replication.factor": _NO_TRANSACTIONS,
        "transaction.state.log.segment.bytes": _NO_TRANSACTIONS,
        "transactional.id.expiration.ms": _NO_TRANSACTIONS,
    }
)
"""Usual keys of a `server.properties` without any effect here: accepted with a warning."""

MOVED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "log.dir": "use log.dirs, or --data-dir",
        "node.id": "use broker.id, or --broker-id",
        "process.roles": "there is no KRaft here: metadata lives in the tree named with --metadata",
        "zookeeper.connect": "use --metadata zookeeper://HOST:PORT/CHROOT",
    }
)
"""Keys that would change the broker's behaviour: refused with the replacement to use."""


def check_not_moved(properties: Mapping[str, str]) -> None:
    """Raise `ConfigurationError` for a key that has a replacement."""
    for name, instead in MOVED.items():
        if name in properties:
            raise ConfigurationError(f"{name} is not supported: {instead}")
