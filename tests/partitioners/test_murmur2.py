import hypothesis
import hypothesis.strategies as st
import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2

from odradek.partitioners import murmur2, partition_for_key

JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", JAVA)
def test_a_hash_is_the_java_clients(key: bytes) -> None:
    """M2."""
    assert murmur2(key) == JAVA[key] & 0xFFFFFFFF


@hypothesis.given(st.binary(max_size=300))
def test_a_hash_is_another_clients(key: bytes) -> None:
    """M2."""
    assert murmur2(key) == aiokafka_murmur2(key)


@hypothesis.given(st.binary(max_size=300), st.integers(1, 1000))
def test_a_key_stays_where_the_java_client_puts_it(key: bytes, partition_count: int) -> None:
    """M2."""
    expected = (aiokafka_murmur2(key) & 0x7FFFFFFF) % partition_count
    assert partition_for_key(key, partition_count) == expected
    assert partition_for_key(key, partition_count) == expected
