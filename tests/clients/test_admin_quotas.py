"""Quotas through `Admin`: each call shows what the last one did."""

import pytest

from odradek.model import ErrorCode, KafkaError
from odradek.security.quotas import DEFAULT, QuotaEntity
from odradek.simulation.world import World
from tests.world.scenes import in_world


@in_world(started=False)
async def test_quotas_are_set_described_and_removed(world: World) -> None:
    await world.start()
    clients, address = QuotaEntity(user="alice", client_id=DEFAULT), QuotaEntity(ip="10.0.0.1")
    async with world.admin() as admin:
        assert await admin.describe_client_quotas() == {}
        await admin.alter_client_quotas(clients, {"producer_byte_rate": 5}, validate_only=True)
        assert await admin.describe_client_quotas() == {}
        await admin.alter_client_quotas(clients, {"producer_byte_rate": 5, "request_percentage": 2.5})
        await admin.alter_client_quotas(address, {"connection_creation_rate": 1})
        assert await admin.describe_client_quotas() == {
            clients: {"producer_byte_rate": 5.0, "request_percentage": 2.5},
            address: {"connection_creation_rate": 1.0},
        }
        with pytest.raises(KafkaError) as caught:
            await admin.alter_client_quotas(address, {"producer_byte_rate": 1})
        assert caught.value.code is ErrorCode.invalid_request
        await admin.alter_client_quotas(clients, {"producer_byte_rate": None, "request_percentage": None})
        assert list(await admin.describe_client_quotas()) == [address]
