"""The exposure of a listener is decided by its address alone."""

import pytest

from odradek.security import is_loopback
from odradek.security.operations import CLUSTER_OPERATIONS, GROUP_OPERATIONS, TOPIC_OPERATIONS


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "::1"])
def test_the_machine_itself_is_no_exposure(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host", ["", "0.0.0.0", "::", "10.0.0.1", "127.0.0.1.example.com", "localhost.example", "128.0.0.1"]
)
def test_everything_else_is(host: str) -> None:
    assert not is_loopback(host)


def test_operations_are_bits_by_their_numbers() -> None:
    assert TOPIC_OPERATIONS == 0b1101_1111_1000
    assert CLUSTER_OPERATIONS == 0b1_1111_1010_0000
    assert GROUP_OPERATIONS == 0b1101_0100_1000
