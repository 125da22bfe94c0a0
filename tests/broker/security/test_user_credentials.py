"""Users with SCRAM credentials: added, changed, listed and deleted by requests (KIP-554)."""

from typing import Any, Final

import pytest

from odradek.clients.admin.user_credentials import UserScramCredentialUpsertion
from odradek.metadata import paths
from odradek.metadata.nodes import ConfigNode
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.security.sasl import encode_credential, salted_password, scram_credential
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import Play, World
from tests.world.scenes import played

SHA256, SHA512 = "SCRAM-SHA-256", "SCRAM-SHA-512"


def upsertion(name: str = "alice", mechanism: int = 1, **changes: Any) -> dict[str, Any]:
    found = {"iterations": 4096, "salt": b"salt", "salted_password": bytes(32)}
    return {"name": name, "mechanism": mechanism, **found, **changes}


def deletion(name: str = "alice", mechanism: int = 1) -> dict[str, Any]:
    return {"name": name, "mechanism": mechanism}


async def alter(client: WireClient, *alterations: dict[str, Any]) -> list[tuple[str, ErrorCode]]:
    upsertions = [each for each in alterations if "salt" in each]
    deletions = [each for each in alterations if "salt" not in each]
    answer = await client.ask(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, {"deletions": deletions, "upsertions": upsertions}, 0
    )
    assert all((each.error_code == ErrorCode.none) == (each.error_message is None) for each in answer.results)
    return [(each.user, each.error_code) for each in answer.results]


async def describe(client: WireClient, *users: str) -> dict[str, Any]:
    message = {"users": [{"name": user} for user in users] or None}
    answer = await client.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, message, 0)
    assert answer.error_code == ErrorCode.none
    return {
        each.user: each.error_code or [(info.mechanism, info.iterations) for info in each.credential_infos]
        for each in answer.results
    }


@played
async def test_credentials_are_kept_in_kafkas_text_beside_other_keys_of_the_user(world: World) -> None:
    await world.start()
    client = await world.client()
    path = paths.user_config("alice@example.com")
    await world.store(0).create(path, ConfigNode(config={"producer_byte_rate": "1000"}).encode())
    salted = salted_password(SHA512, "secret", salt=b"salt", iterations=8192)
    wanted = upsertion("alice@example.com", 2, iterations=8192, salted_password=salted)
    assert await alter(client, wanted, upsertion("bob")) == [("alice@example.com", 0), ("bob", 0)]
    node = await world.store(0).get(path)
    assert node is not None
    assert ConfigNode.decode(path, node.data).config == {
        "producer_byte_rate": "1000",
        SHA512: encode_credential(scram_credential(SHA512, "secret", salt=b"salt", iterations=8192)),
    }
    assert await describe(client) == {"alice@example.com": [(2, 8192)], "bob": [(1, 4096)]}
    assert await alter(client, deletion("alice@example.com", 2)) == [("alice@example.com", 0)]
    node = await world.store(0).get(path)
    assert node is not None
    assert ConfigNode.decode(path, node.data).config == {"producer_byte_rate": "1000"}
    assert await describe(client) == {"bob": [(1, 4096)]}
    assert await describe(client, "bob", "bob", "alice@example.com") == {
        "bob": ErrorCode.duplicate_resource,
        "alice@example.com": ErrorCode.resource_not_found,
    }


UNACCEPTABLE: Final = ErrorCode.unacceptable_credential


@pytest.mark.parametrize(
    ("alterations", "code"),
    [
        ([upsertion(iterations=4095)], UNACCEPTABLE),
        ([upsertion(iterations=16385)], UNACCEPTABLE),
        ([upsertion("")], UNACCEPTABLE),
        ([deletion("")], UNACCEPTABLE),
        ([upsertion("a" * 1025)], UNACCEPTABLE),
        ([upsertion(salt=b"")], UNACCEPTABLE),
        ([upsertion(salted_password=b"")], UNACCEPTABLE),
        ([upsertion(mechanism=0)], ErrorCode.unsupported_sasl_mechanism),
        ([deletion(mechanism=3)], ErrorCode.unsupported_sasl_mechanism),
        ([deletion()], ErrorCode.resource_not_found),
        ([upsertion(mechanism=2), deletion()], ErrorCode.resource_not_found),
        ([upsertion(), upsertion()], ErrorCode.duplicate_resource),
        ([upsertion(), deletion()], ErrorCode.duplicate_resource),
        ([upsertion(), upsertion(mechanism=2)], ErrorCode.none),
    ],
)
@played
async def test_all_alterations_of_a_user_are_made_or_none(
    world: World, alterations: list[dict[str, Any]], code: ErrorCode
) -> None:
    await world.start()
    client = await world.client()
    name = alterations[0]["name"]
    assert dict(await alter(client, *alterations, upsertion("bob"))) == {name: code, "bob": ErrorCode.none}
    assert (name in await describe(client)) == (code is ErrorCode.none)
    assert "bob" in await describe(client)


def test_passwords_are_not_shown_and_wrong_arguments_are_refused(play: Play) -> None:
    wanted = UserScramCredentialUpsertion(user="a", mechanism=SHA256, password="secret")
    assert "secret" not in repr(wanted)

    async def scene(world: World) -> None:
        await world.start()
        async with world.admin() as admin:
            for mechanism, iterations in (("MD5", 4096), (SHA256, 10**9)):
                with pytest.raises(ValueError, match=r"MD5|iterations are"):
                    await admin.alter_user_scram_credentials(
                        [
                            UserScramCredentialUpsertion(
                                user="a", mechanism=mechanism, password="x", iterations=iterations
                            )
                        ]
                    )

    play(scene)
