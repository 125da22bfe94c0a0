"""The definition of a sweep: its axes, the order and ids of its scenarios, the size of batches.

A *setting* is a value of each axis; a *scenario* is a setting and a strategy. Settings are numbered in a fixed order
that spreads the values of every axis evenly, so that consecutive settings are a sample of all: batches cost about the
same, and `--limit` computes a representative part.
"""

import json
from collections.abc import Mapping
from hashlib import blake2b
from math import gcd, prod
from random import Random
from typing import Final

from msgspec import Struct

from odradek.lab.case import Case

Value = int | float | str
Setting = Mapping[str, Value]
"""The value of each axis, by its name."""

AXES: Final = (
    "members", "topics", "partitions", "skew", "subscribed", "racks", "replicas", "failure", "seed",
)  # fmt: skip
"""All axes except the strategy; also keys of the TOML file and columns of the table."""
GROUP_AXES: Final = ("failure", "seed")
"""The axes of a sweep over a given group."""

_BATCH_S: Final = 2.0
_SCENARIO_S: Final = 0.0004
_PART_S: Final = 0.000008
"""A scenario takes about `_SCENARIO_S`, and `_PART_S` for each member and partition (docs/performance.md)."""
_MOST_IN_A_BATCH: Final = 5_000


class Sweep(Struct, frozen=True, kw_only=True):
    """A sweep as its file describes it."""

    axes: Mapping[str, tuple[Value, ...]]
    """The values of each axis, in the order of `AXES`."""
    strategies: tuple[str, ...]
    directory: str
    """The directory of the results."""
    batch: int
    """Scenarios that are computed and saved together."""
    group: Case | None = None
    """The group of all scenarios, instead of one made from the axes."""
    group_digest: str = ""
    """A hash of the file of `group`."""
    x: str | None = None
    """The axes of the heat maps; None means the two with the most values."""
    y: str | None = None

    @property
    def setting_count(self) -> int:
        """Return the number of settings."""
        return prod(map(len, self.axes.values()))

    @property
    def scenario_count(self) -> int:
        """Return the number of scenarios."""
        return self.setting_count * len(self.strategies)

    def setting(self, position: int) -> Setting:
        """Return the setting at a position from 0 to `setting_count` - 1; no setting has two positions."""
        index = position * _stride(self.setting_count) % self.setting_count
        found: dict[str, Value] = {}
        for axis, values in reversed(tuple(self.axes.items())):
            index, place = divmod(index, len(values))
            found[axis] = values[place]
        return found

    def definition(self) -> dict[str, object]:
        """Return what determines the setting at each position: results of different definitions must not mix."""
        axes: dict[str, object] = {axis: list(values) for axis, values in self.axes.items()}
        return axes | ({"group": self.group_digest} if self.group_digest else {})

    def identity(self, setting: Setting, strategy: str) -> str:
        """Return the scenario's id, 16 hexadecimal digits of a hash of its parameters."""
        return _digest([self.group_digest, dict(setting), strategy]).hex()

    def case_random(self, setting: Setting) -> Random:
        """Return the random generator that makes the group: the same for all strategies and failures."""
        return self._random(setting, "failure")

    def failure_random(self, setting: Setting) -> Random:
        """Return the random generator that chooses the failing member, rack or topic: the same for all strategies."""
        return self._random(setting)

    def _random(self, setting: Setting, without: str = "") -> Random:
        kept = {axis: value for axis, value in setting.items() if axis != without}
        return Random(int.from_bytes(_digest([self.group_digest, kept]), "big"))


def batch_of(mean_parts: float) -> int:
    """Return how many scenarios take about two seconds, 1 to 5,000; `mean_parts`: a group's members and partitions."""
    return max(1, min(_MOST_IN_A_BATCH, int(_BATCH_S / (_SCENARIO_S + _PART_S * mean_parts))))


def _stride(count: int) -> int:
    """Return the step between positions: about 0.618 × `count`, and coprime to it, so that each index occurs once."""
    stride = max(1, round(count * 0.618_033_988_75))
    while gcd(stride, count) != 1:
        stride += 1
    return stride


def _digest(value: object) -> bytes:
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).digest()
