"""A world whose consumers use one group protocol."""

from typing import Any

from odradek.clients import Consumer
from odradek.simulation.world import World


class GroupWorld(World):
    """A world whose consumers with a group use one protocol."""

    def __init__(self, seed: int, protocol: str) -> None:
        super().__init__(seed)
        self.protocol = protocol

    def consumer(self, host: str, *topics: str, **settings: Any) -> Consumer:
        if "group_id" in settings:
            settings["group_protocol"] = self.protocol
            if self.protocol == "consumer":
                settings.pop("session_timeout_ms", None)
        return super().consumer(host, *topics, **settings)
