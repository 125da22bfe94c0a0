"""`/feature`: the finalized levels of features (KIP-584), in Kafka's format.

```
{"version": 2, "status": 1, "features": {"transaction.version": {"max_version_level": 2}}}
```
A feature of level 0 is left out. Version 1 of the node also has `min_version_level`; with status 0 the levels are not
used. The broker creates the node at the first change: without it, the features have the levels of a new cluster.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from msgspec import Struct

from odradek.metadata.node_fields import Fields

TRANSACTION_VERSION: Final = "transaction.version"
"""How producers take part in transactions: from level 2 on, each transaction has its own producer epoch (KIP-890)."""
NEW_CLUSTER: Final[Mapping[str, int]] = MappingProxyType({TRANSACTION_VERSION: 2})
_ENABLED: Final = 1


class FinalizedFeatures(Struct, frozen=True, kw_only=True):
    """The levels of `/feature`, and the number of its changes, 0 without the node."""

    levels: Mapping[str, int] = NEW_CLUSTER
    changes: int = 0

    @property
    def transaction_version(self) -> int:
        return self.levels.get(TRANSACTION_VERSION, 0)

    def encode(self) -> bytes:
        """Encode Kafka's version 2."""
        levels = {name: {"max_version_level": level} for name, level in self.levels.items() if level > 0}
        return json.dumps({"version": 2, "status": _ENABLED, "features": levels}, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, path: str, data: bytes, *, node_version: int) -> "FinalizedFeatures":
        """Decode versions 1 and 2. Raises `BrokenNodeError` for other content."""
        fields = Fields(path, data)
        levels: dict[str, Any] = fields.mapping("features", required=True)
        found = {name: Fields(path, levels[name]).integer("max_version_level", bits=16) for name in levels}
        is_enabled = fields.integer("status") == _ENABLED
        return cls(levels=found if is_enabled else {}, changes=node_version + 1)
