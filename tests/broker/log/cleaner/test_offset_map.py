"""The map of keys to offsets against a dict, at its limits and while it grows."""

import hashlib
import random

import pytest

from odradek.broker.log.cleaner.offset_map import SLOT_BYTES, OffsetMap

SECRET = bytes(range(16))


def new_map(max_bytes: int = 1 << 20, load_factor: float = 0.9) -> OffsetMap:
    return OffsetMap(max_bytes, load_factor, secret=SECRET)


def test_the_last_offset_of_a_key_is_found_while_the_table_grows() -> None:
    entropy, offsets, expected = random.Random(1), new_map(), dict[bytes, int]()
    for first in range(0, 40_000, 500):
        keys = {b"key %d" % entropy.randrange(20_000): first + number for number in range(500)}
        assert offsets.put(keys)
        expected.update(keys)
    assert offsets.size == len(expected)
    assert offsets.get(list(expected)) == list(expected.values())
    assert offsets.get([b"absent", b"", b"key 20000"]) == [-1, -1, -1]


def test_the_old_and_the_new_table_fit_into_the_allowed_memory() -> None:
    for max_bytes in (100_000, 1 << 20, 5_000_000, 128 << 20):
        offsets = new_map(max_bytes)
        sizes = [len(offsets.slots)]
        while sizes[-1] < offsets.max_keys:
            offsets.reserve(sizes[-1])
            sizes.append(len(offsets.slots))
        assert sum(sizes[-2:]) * SLOT_BYTES <= max_bytes, sizes
        assert offsets.max_keys == int(sizes[-1] * 0.9)
        assert sizes[-1] * SLOT_BYTES * 2.5 > max_bytes, "a power of two that is no smaller than it must be"


def test_a_key_is_refused_when_the_map_is_full_and_a_known_one_is_not() -> None:
    offsets = new_map(1, load_factor=0.5)
    assert offsets.max_keys == 512
    assert offsets.put({b"%d" % number: number for number in range(512)})
    assert offsets.utilization == 1
    assert not offsets.put({b"0": 600, b"512": 601})
    assert offsets.get([b"0", b"512"]) == [0, -1], "all of it or nothing"
    assert offsets.put({b"0": 600, b"511": 601})
    assert offsets.get([b"0", b"511"]) == [600, 601]


def test_a_full_table_finds_every_key_and_notices_that_another_is_not_there() -> None:
    offsets = new_map(1, load_factor=1.0)
    assert offsets.max_keys == 960, "some slots are free, or the search for a new key would not end"
    assert offsets.put({b"%d" % number: number for number in range(960)})
    assert offsets.get([b"%d" % number for number in range(961)]) == [*range(960), -1]
    assert not offsets.put({b"%d" % number: number for number in range(1024, 2048)})


def test_colliding_new_keys_all_get_a_slot() -> None:
    """Half of the keys of a large call meet others at their first slot."""
    offsets = new_map(1 << 20)
    keys = {hashlib.sha1(b"%d" % number).digest(): number for number in range(25_000)}
    assert offsets.put(keys)
    assert offsets.size == 25_000
    assert offsets.get(list(keys)) == list(range(25_000))


def test_an_empty_call_is_no_error() -> None:
    offsets = new_map()
    assert offsets.put({})
    assert offsets.get([]) == []


@pytest.mark.parametrize("load_factor", [0.001, 0.0])
def test_a_map_has_room_for_at_least_one_key(load_factor: float) -> None:
    offsets = new_map(0, load_factor)
    assert offsets.put({b"k": 1})
    assert not offsets.put({b"l": 2}) or load_factor > 0
