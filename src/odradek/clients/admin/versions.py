"""The versions of a cluster's software, as far as they are known: Kafka's protocol has no field for a release.

Our brokers have the read-only key `odradek.version` in their configuration, Kafka's before 4.0
`inter.broker.protocol.version`; Kafka's in KRaft mode have the finalized feature `metadata.version`, whose level is
that of the release whose features the whole cluster uses.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from odradek.clients.admin.descriptions import ConfigResource, ConfigResourceType
from odradek.model import OdradekError

if TYPE_CHECKING:
    from odradek.clients.admin.admin import Admin

_LIMIT_S: Final = 1.0
_OURS: Final = "odradek.version"
_KAFKAS: Final = "inter.broker.protocol.version"
_METADATA: Final = "metadata.version"
_RELEASES: Final = (
    (1, "3.0"), (2, "3.1"), (3, "3.2"), (4, "3.3"), (8, "3.4"), (9, "3.5"), (12, "3.6"), (15, "3.7"), (20, "3.8"),
    (21, "3.9"), (22, "4.0"), (26, "4.1"), (28, "4.2"), (30, "4.3"), (31, "4.4"),
    (34, ""),
)  # fmt: skip
"""The first level of `metadata.version` of each release of Kafka."""


class Versions(Struct, frozen=True, kw_only=True):
    """The software of each broker as text, "" where it is unknown, and the finalized features with their levels."""

    brokers: Mapping[int, str] = {}
    features: Mapping[str, int] = {}

    @property
    def feature_texts(self) -> list[str]:
        """Each feature with its level, `metadata.version` also with its release of Kafka."""
        texts = []
        for name, level in sorted(self.features.items()):
            place = bisect_right(_RELEASES, level, key=lambda each: each[0]) if name == _METADATA else 0
            release = _RELEASES[place - 1][1] if place else ""
            texts.append(f"{name} {level}" + f" (Kafka {release})" * bool(release))
        return texts


async def read_versions(admin: "Admin", brokers: Collection[int]) -> Versions:
    """Return what is known of the versions; what a broker refuses or does not answer in time is unknown."""

    async def version_of(broker_id: int) -> str:
        try:
            async with asyncio.timeout(_LIMIT_S):
                resource = ConfigResource(type=ConfigResourceType.BROKER, name=str(broker_id))
                entries = (await admin.describe_configs([resource]))[resource]
        except (OdradekError, TimeoutError):
            return ""
        values = {each.name: each.value for each in entries}
        if ours := values.get(_OURS):
            return f"Odradek {ours}"
        return f"Kafka, protocol {values[_KAFKAS]}" if values.get(_KAFKAS) else ""

    async def features() -> Mapping[str, int]:
        try:
            async with asyncio.timeout(_LIMIT_S):
                found = (await admin.describe_broker_versions()).finalized_features
        except (OdradekError, TimeoutError):
            return {}
        return {name: level for name, (_, level) in found.items()}

    levels, texts = await asyncio.gather(features(), asyncio.gather(*map(version_of, brokers)))
    return Versions(brokers=dict(zip(brokers, texts, strict=True)), features=levels)
