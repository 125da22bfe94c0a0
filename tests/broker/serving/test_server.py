"""The log says at which addresses a broker listens, with the ports that it got."""

import logging

import pytest

from odradek.simulation.world import World
from tests.world.scenes import in_world


@in_world(started=False)
async def test_the_log_says_the_bound_addresses(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "odradek.broker")
    broker = await world.start(
        listeners="PLAINTEXT://broker:0,EVERYWHERE://:9094",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,EVERYWHERE:PLAINTEXT",
    )
    port = broker.server.endpoints[0].port
    assert port
    assert [text for text in caplog.messages if text.startswith("listening at ")] == [
        f"listening at PLAINTEXT://broker:{port}",
        "listening at EVERYWHERE://:9094, on every interface of this machine",
    ]
