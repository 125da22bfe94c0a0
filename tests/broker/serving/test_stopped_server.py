"""A server whose connections were reset, as by a kill."""

from odradek.simulation.world import World
from tests.world.scenes import in_world


@in_world()
async def test_a_connection_that_opens_after_the_others_were_reset_is_refused(world: World) -> None:
    """It was accepted before, and would have its requests served by an event loop that is being closed."""
    server = world.broker.server
    client = await world.client()
    await client.create_topic("t")
    (connection,) = server._connections
    server.abort_connections()
    assert not server.connection_opened(connection, "PLAINTEXT")
    client.close()
