"""The finalized features: stored in the tree in Kafka's format, changed by UpdateFeatures, shown by ApiVersions."""

import json
from typing import Any, Final

import pytest

from odradek.metadata import paths
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World, until
from tests.world.scenes import in_world, played

NAME: Final = "transaction.version"
UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


async def update(
    client: WireClient, level: int, kind: int = UPGRADE, *, name: str = NAME, version: int = 2, **more: Any
) -> Any:
    return await client.ask(
        ApiKey.UPDATE_FEATURES,
        {"feature_updates": [{"feature": name, "max_version_level": level, "upgrade_type": kind}], **more},
        version,
    )


async def finalized(client: WireClient) -> tuple[int, int]:
    """Return the level of `transaction.version`, 0 if it is not listed, and the epoch of the features."""
    software = {"client_software_name": "a", "client_software_version": "1"}
    answer = await client.ask(ApiKey.API_VERSIONS, software, 4)
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    return levels.get(NAME, 0), answer.finalized_features_epoch


@in_world(brokers=2, started=False)
async def test_every_broker_shows_a_new_level_and_a_higher_epoch(world: World) -> None:
    await world.start(0)
    await world.start(1)
    clients = [await world.client(broker=each) for each in (0, 1)]
    assert [await finalized(each) for each in clients] == [(2, 33), (2, 33)]
    assert await world.store(0).get(paths.FEATURE) is None
    answer = await update(clients[1], 1, SAFE_DOWNGRADE, version=1)
    assert (answer.error_code, [each.feature for each in answer.results]) == (ErrorCode.none, [NAME])
    assert await finalized(clients[1]) == (1, 34)
    await until(lambda: world.broker.image.features.transaction_version == 1)
    assert await finalized(clients[0]) == (1, 34)
    node = await world.store(0).get(paths.FEATURE)
    assert node is not None
    assert json.loads(node.data) == {"version": 2, "status": 1, "features": {NAME: {"max_version_level": 1}}}
    assert (await update(clients[0], 0, UNSAFE_DOWNGRADE)).error_code == ErrorCode.none
    assert await finalized(clients[0]) == (0, 35)
    assert (await update(clients[0], 2)).error_code == ErrorCode.none
    assert await finalized(clients[0]) == (2, 36)


@pytest.mark.parametrize(
    ("name", "level", "kind", "error"),
    [
        (NAME, 1, UPGRADE, "Can't downgrade the version of this feature without setting the upgrade type"),
        (NAME, 3, UPGRADE, "Local controller 0 only supports versions 0-2"),
        (NAME, -1, UNSAFE_DOWNGRADE, "A feature version cannot be less than 0."),
        (NAME, 2, 0, "The controller does not support the given upgrade type."),
        ("metadata.version", 29, SAFE_DOWNGRADE, "Unsupported metadata.version downgrade from 33 to 29. Refusing"),
        ("group.version", 0, SAFE_DOWNGRADE, "This release has level 1, which cannot be changed."),
        ("share.version", 1, UPGRADE, "Local controller 0 does not support this feature."),
        ("no.such.version", 1, UPGRADE, "Local controller 0 does not support this feature."),
    ],
)
@played
async def test_an_update_that_is_not_possible_is_refused(
    world: World, name: str, level: int, kind: int, error: str
) -> None:
    await world.start()
    client = await world.client()
    answer = await update(client, level, kind, name=name)
    assert answer.error_code == ErrorCode.invalid_update_version
    assert error in answer.error_message
    assert await finalized(client) == (2, 33)


@played
async def test_a_dry_run_and_an_update_to_the_present_level_write_nothing(world: World) -> None:
    await world.start()
    client = await world.client()
    assert (await update(client, 0, SAFE_DOWNGRADE, validate_only=True)).error_code == ErrorCode.none
    assert (await update(client, 2)).error_code == ErrorCode.none
    assert (await update(client, 1, name="group.version")).error_code == ErrorCode.none
    assert await world.store(0).get(paths.FEATURE) is None


@pytest.mark.parametrize(
    ("data", "level"),
    [
        (b'{"version":1,"status":1,"features":{"%s":{"min_version_level":1,"max_version_level":1}}}', 1),
        (b'{"version":2,"status":1,"features":{"metadata.version":{"max_version_level":8}}}', 0),
        (b'{"version":1,"status":0,"features":{"%s":{"min_version_level":1,"max_version_level":1}}}', 0),
    ],
)
@played
async def test_a_node_of_kafkas_decides_the_levels(world: World, data: bytes, level: int) -> None:
    await world.start()
    client = await world.client()
    await world.store(0).create(paths.FEATURE, data.replace(b"%s", NAME.encode()))
    await until(lambda: world.broker.image.features.transaction_version == level)
    assert await finalized(client) == (level, 34)
    await world.store(0).set(paths.FEATURE, b"{")
    answer = await update(client, 2)
    assert answer.error_code == ErrorCode.feature_update_failed
    assert "/feature is broken: not JSON" in answer.error_message
    assert await finalized(client) == (level, 34)
