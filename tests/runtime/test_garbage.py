"""Full collections of garbage go over the objects that are younger than the last one."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from odradek.runtime.garbage import FrozenSurvivors


class Item:
    """An object that may be in a cycle."""

    def __init__(self) -> None:
        self.other: Item | None = None


def _cycle() -> Item:
    first, second = Item(), Item()
    first.other, second.other = second, first
    return first


def _looked_at(items: list[list[int]]) -> int:
    """Return how many of the items the next collection goes over."""
    places = {id(each) for each in items}
    return sum(id(each) in places for each in gc.get_objects())


@pytest.fixture
def most_objects() -> int:
    return 10**9


@pytest.fixture(scope="module", autouse=True)
def _garbage_of_these_tests() -> Iterator[None]:
    yield
    gc.unfreeze()
    gc.collect()
    gc.freeze()


@pytest.fixture
def now(most_objects: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The time of a process that begins with a thousand objects: those of all tests are not counted."""
    time, callbacks, threshold, count = [0.0], tuple(gc.callbacks), gc.get_threshold(), gc.get_freeze_count
    gc.freeze()
    others = count() - 1000
    monkeypatch.setattr(gc, "get_freeze_count", lambda: count() - others)
    FrozenSurvivors(lambda: time[0], fewest_objects=0, most_objects=most_objects).start()
    yield time
    gc.callbacks[:] = callbacks
    gc.set_threshold(*threshold)


def test_survivors_of_a_full_collection_are_frozen(now: list[float]) -> None:
    del now
    kept = [[number] for number in range(10_000)]
    assert _looked_at(kept) == len(kept)
    gc.collect()
    assert _looked_at(kept) == 0


def test_frozen_garbage_is_collected_after_an_hour(now: list[float]) -> None:
    old, young = _cycle(), _cycle()
    watched = weakref.ref(old)
    gc.collect()
    young = _cycle()
    watched_young = weakref.ref(young)
    del old, young
    gc.collect()
    assert watched() is not None
    assert watched_young() is None
    now[0] = 3600.0
    gc.collect()
    assert watched() is None


def test_frozen_garbage_is_collected_when_the_frozen_objects_have_doubled(now: list[float]) -> None:
    del now
    old = _cycle()
    watched = weakref.ref(old)
    gc.collect()
    del old
    kept = [[number] for number in range(2 * gc.get_freeze_count())]
    gc.collect()
    gc.collect()
    assert watched() is None
    assert kept


@pytest.mark.parametrize("most_objects", [1_000])
def test_no_collection_goes_over_more_objects_than_the_limit(now: list[float]) -> None:
    kept, old = [[number] for number in range(2 * gc.get_freeze_count())], _cycle()
    watched_old = weakref.ref(old)
    gc.collect()
    del old
    for _ in range(2):
        now[0] += 3600.0
        young = _cycle()
        watched = weakref.ref(young)
        del young
        gc.collect()
        assert _looked_at(kept) == 0
        assert watched() is None
        assert watched_old() is not None, "what is frozen stays"
