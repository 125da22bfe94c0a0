"""The purgatory, the supply of producer ids, and the cache of answers."""

import asyncio

from odradek.broker.cluster.producer_ids import ProducerIds
from odradek.broker.serving.purgatory import Purgatory
from odradek.broker.serving.response_cache import CachedResponse, ResponseCache
from odradek.metadata.image import ClusterImage
from odradek.simulation.world import World
from tests.world.scenes import played


class Waiting:
    """Counts how often its time came."""

    def __init__(self) -> None:
        self.expired = 0

    def expire(self) -> None:
        self.expired += 1


@played
async def test_an_operation_expires_once_unless_it_is_released(world: World) -> None:
    purgatory = Purgatory()
    late, early, last = Waiting(), Waiting(), Waiting()
    purgatory.park(late, 1000)
    purgatory.park(early, 1000)
    purgatory.park(last, 60_000)
    assert purgatory.release(early)
    assert not purgatory.release(early)
    await world.pass_time(2)
    assert (late.expired, early.expired, last.expired, len(purgatory)) == (1, 0, 0, 1)
    purgatory.expire_all()
    assert (last.expired, len(purgatory)) == (1, 0)
    await world.pass_time(100)
    assert (late.expired, last.expired) == (1, 1)


@played
async def test_concurrent_requests_get_ids_of_their_own_and_no_block_is_wasted(world: World) -> None:
    blocks = iter([range(10), range(30, 32), range(5), range(40, 50)])

    async def allocate() -> range:
        await world.pass_time(0.1)
        return next(blocks)

    ids = ProducerIds(allocate)
    taken = await asyncio.gather(*(ids.take() for _ in range(12)))
    assert sorted(taken) == [*range(10), 30, 31]


def test_answers_are_of_one_image_and_not_too_many() -> None:
    cache, old, new = ResponseCache(), ClusterImage(cluster_id="old"), ClusterImage(cluster_id="new")
    key = (9, "PLAINTEXT", b"question")

    def response(body: bytes) -> CachedResponse:
        return CachedResponse(body, {3: 1})

    cache.put(old, key, response(b"answer"))
    assert cache.get(old, key) == (b"answer", {3: 1})
    assert cache.get(new, key) is None
    cache.put(new, (9, "PLAINTEXT", b"other"), response(b"x"))
    assert cache.get(new, key) is None
    cache.put(new, (9, "PLAINTEXT", b"q" * 5000), response(b"long question"))
    assert cache.get(new, (9, "PLAINTEXT", b"q" * 5000)) is None
    for number in range(100):
        cache.put(new, (number, "PLAINTEXT", b"q"), response(bytes(1 << 20)))
    assert sum(cache.get(new, (number, "PLAINTEXT", b"q")) is not None for number in range(100)) == 15
