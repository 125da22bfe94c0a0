"""The cluster that a seed draws: broker configuration, latency of the tree, and parameters of the workloads."""

from collections.abc import Mapping
from random import Random
from typing import Final

from msgspec import Struct, convert
from msgspec.structs import asdict, replace

MOST_CONNECTIONS: Final = 80
"""Limit of a broker's connections, far more than the clients of a seed need."""
NEVER_MS: Final = 3_000_000
"""A delivery timeout that no record of a seed reaches."""
REQUEST_BYTES: Final = 1 << 20
"""A broker's memory for requests."""
CONFIG: Final = {
    "max.incremental.fetch.session.cache.slots": "40",
    "max.connections": str(MOST_CONNECTIONS),
    "queued.max.request.bytes": str(REQUEST_BYTES),
    "socket.request.max.bytes": str(REQUEST_BYTES),
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "3000",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
}
"""Broker configuration of every seed that does not override it."""

_DRAWN: Final[Mapping[str, tuple[str, ...]]] = {
    "log.flush.mode": ("none", "none", "none", "group"),
    "log.segment.bytes": ("1073741824", "1073741824", "4096"),
    "replica.lag.time.max.ms": ("3000", "3000", "10000"),
    "transactional.id.expiration.ms": ("604800000", "604800000", "10000"),
    "num.replica.fetchers": ("1", "1", "2"),
    "replica.fetch.wait.max.ms": ("500", "1500", "1500"),
    "log.dirs": ("/data", "/data", "/data-1,/data-2"),
    "min.insync.replicas": ("2", "2", "1"),
    "replica.selector.class": ("leader", "rack-aware"),
}
"""Broker configuration that a seed draws."""
_DRAWN_ALONE: Final[Mapping[str, tuple[str, ...]]] = {
    "offsets.topic.segment.bytes": ("104857600", "104857600", "4096"),  # small ones are compacted
    "log.cleaner.backoff.ms": ("15000", "2000"),
}
"""Broker configuration that a seed draws, each key with random numbers of its own: a new one changes no other draw."""
_UNUSUAL_SIZES: Final = 1 / 8
"""The share of the seeds with fewer than three brokers, or more than five."""
_OF_REPLICAS: Final = ("replication.factor", "min.isr", "min.insync.replicas")
"""Ends of the keys that no cluster with fewer brokers than their values can meet."""


class Setup(Struct, frozen=True, kw_only=True):
    """One cluster of 1 to 7 brokers. `tree_s` is the mean latency to the tree.

    No seed draws `tree_lag_s`, the mean lag of reads. With `noticed_at_once`, the session of a killed broker ends
    immediately. `distance_s` is added to the latency between the broker `distant` and the others, so that high
    watermarks lag. Topics have `replicas` replicas, and take
    batches of `message_bytes`. Producers send `burst` records at once, in batches of about `batch_size` bytes, and wait
    `request_timeout_ms` for responses, in all `delivery_timeout_ms`; unless `is_idempotent`, one has no sequences.
    Readers in `rack` read the replica of the broker in it, if the brokers have a selector of replicas.
    """

    config: dict[str, str]
    tree_s: float
    tree_lag_s: float = 0.0
    noticed_at_once: bool
    partitions: int
    transaction_version: int
    brokers: int
    replicas: int
    distant: int
    distance_s: float
    burst: int
    batch_size: int
    request_timeout_ms: int
    rack: str
    message_bytes: int
    is_idempotent: bool
    delivery_timeout_ms: int

    @property
    def flushes_by_group(self) -> bool:
        """Whether acknowledged records are on the disks of all in-sync replicas."""
        return self.config.get("log.flush.mode") == "group"


def draw_setup(seed: int, config: Mapping[str, str]) -> Setup:
    """Return the cluster of a seed; `config` overrides what it draws: broker configuration, and fields of `Setup`."""
    chance = Random(f"{seed}/setup")
    drawn = {key: chance.choice(values) for key, values in _DRAWN.items()}
    drawn |= {key: Random(f"{seed}/{key}").choice(values) for key, values in _DRAWN_ALONE.items()}
    pinned = {key: value for key, value in config.items() if key in Setup.__struct_fields__}
    brokers = Random(f"{seed}/brokers").choice((3, 3, 3, 3, 3, 3, 4, 5))
    if (unusual := Random(f"{seed}/size")).random() < _UNUSUAL_SIZES:
        brokers = unusual.choice((1, 2, 2, 6, 7))
    setup = Setup(
        config={**CONFIG, **drawn, **{key: value for key, value in config.items() if key not in pinned}},
        tree_s=chance.choice((0.0, 0.0, 0.005, 0.03)),
        noticed_at_once=chance.random() < 0.5,
        partitions=chance.choice((1, 2, 2, 3)),
        # Two-phase commit needs version 2.
        transaction_version=2 if "transaction.two.phase.commit.enable" in config else chance.choice((1, 2, 2)),
        replicas=chance.choice((3, 3, 2)),
        brokers=brokers,
        distant=chance.randrange(3),
        distance_s=chance.choice((0.0, 0.0, 0.005, 0.02, 0.05)),
        burst=chance.choice((1, 1, 12)),
        batch_size=chance.choice((150, 3_000)),
        request_timeout_ms=chance.choice((500, 4_000, 4_000)),
        rack=f"rack-{chance.randrange(3)}",
        message_bytes=chance.choice((1_048_588, 1_048_588, 1_200)),
        is_idempotent=Random(f"{seed}/idempotence").random() < 0.85,
        delivery_timeout_ms=Random(f"{seed}/delivery").choice((NEVER_MS, NEVER_MS, NEVER_MS, 6_000)),
    )
    setup = convert(asdict(setup) | pinned, Setup, strict=False)
    most = {key: min(int(setup.config[key]), setup.brokers) for key in setup.config if key.endswith(_OF_REPLICAS)}
    setup.config.update({key: str(value) for key, value in most.items()})
    return replace(setup, replicas=min(setup.replicas, setup.brokers), distant=setup.distant % setup.brokers)
