"""A `World` whose brokers have racks."""

from collections.abc import Mapping
from typing import Any

from odradek.broker.lifecycle import Broker
from odradek.simulation.world import World


class RackWorld(World):
    """Brokers of which each has a rack of its own, `rack-0`, `rack-1`, …, and a selector of the replicas for reads."""

    def __init__(
        self, seed: int, config: Mapping[str, str] | None = None, *, selector: str = "rack-aware", **options: Any
    ) -> None:
        super().__init__(seed, {**(config or {}), "replica.selector.class": selector}, **options)

    async def start(self, number: int = 0, **config: Any) -> Broker:
        return await super().start(number, broker_rack=f"rack-{number}", **config)
