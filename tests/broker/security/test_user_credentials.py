"""Users with SCRAM credentials: added, changed, listed and deleted by requests (KIP-554)."""

from typing import Any, Final

import pytest

from odradek.broker.security.scram_users import ScramUsers
from odradek.clients.admin.user_credentials import UserScramCredentialUpsertion
from odradek.metadata import paths
from odradek.metadata.image import ClusterImage
from odradek.metadata.nodes import ClusterSecretNode, ConfigNode
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.security.sasl.scram import encode_credential, salted_password, scram_credential
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World
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


@played
async def test_passwords_are_not_shown_and_wrong_arguments_are_refused(world: World) -> None:
    wanted = UserScramCredentialUpsertion(user="a", mechanism=SHA256, password="secret")
    assert "secret" not in repr(wanted)
    await world.start()
    async with world.admin() as admin:
        for mechanism, iterations in (("MD5", 4096), (SHA256, 10**9)):
            with pytest.raises(ValueError, match=r"MD5|iterations are"):
                await admin.alter_user_scram_credentials(
                    [UserScramCredentialUpsertion(user="a", mechanism=mechanism, password="x", iterations=iterations)]
                )


# ---- Exchanges -------------------------------------------------------------------------------------------------------

SHA_256 = "SCRAM-SHA-256"


STRANGERS = [f"stranger-{number}" for number in range(50)]


def users(*shapes: tuple[int, int], secret: bytes = b"secret") -> ScramUsers:
    """Return the users of a tree with one credential of each shape: the salt's length and the iterations."""
    configs = {
        f"user-{length}-{iterations}": {
            SHA_256: encode_credential(scram_credential(SHA_256, "x", salt=b"s" * length, iterations=iterations))
        }
        for length, iterations in shapes
    }
    image = ClusterImage(user_configs=configs, secret=ClusterSecretNode(secret=secret))
    return ScramUsers(lambda: image)


@pytest.mark.parametrize("shapes", [[(32, 4096)], [(16, 8192)], [(32, 4096), (24, 5000), (16, 8192)]], ids=str)
def test_strangers_get_salts_and_iterations_as_credentials_have_them(shapes: list[tuple[int, int]]) -> None:
    imagined = [users(*shapes).imagined(SHA_256, each) for each in STRANGERS]
    assert {(len(salt), iterations) for salt, iterations in imagined} == set(shapes)
    assert len({salt for salt, _ in imagined}) == len(STRANGERS)


def test_brokers_of_one_cluster_show_the_same_and_those_of_another_do_not() -> None:
    one, other = users((32, 4096)), users((32, 4096))
    assert [one.imagined(SHA_256, each) for each in STRANGERS] == [other.imagined(SHA_256, each) for each in STRANGERS]
    foreign = users((32, 4096), secret=b"another")
    assert one.imagined(SHA_256, "x") != foreign.imagined(SHA_256, "x")
    assert one.imagined(SHA_256, "x")[0] != one.imagined("SCRAM-SHA-512", "x")[0]


def test_another_user_of_a_known_shape_changes_nothing_for_strangers() -> None:
    configs = {name: {SHA_256: encode_credential(scram_credential(SHA_256, name, salt=b"s" * 32, iterations=4096))}
               for name in ("alice", "bob")}  # fmt: skip
    images = [ClusterImage(user_configs={"alice": configs["alice"]}), ClusterImage(user_configs=configs)]
    shown = ScramUsers(lambda: images[0])
    before = [shown.imagined(SHA_256, each) for each in STRANGERS]
    images.pop(0)
    assert [shown.imagined(SHA_256, each) for each in STRANGERS] == before


def test_without_any_credential_strangers_get_what_tools_make() -> None:
    salt, iterations = users().imagined(SHA_256, "x")
    assert (len(salt), iterations) == (32, 4096)
    assert users().credential(SHA_256, "x") is None
