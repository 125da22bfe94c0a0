"""An exchange shows the same of users without a credential as of others (X2)."""

import pytest

from odradek.broker.security.scram_users import ScramUsers
from odradek.metadata.image import ClusterImage
from odradek.metadata.nodes import ClusterSecretNode
from odradek.security.sasl import encode_credential, scram_credential

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
