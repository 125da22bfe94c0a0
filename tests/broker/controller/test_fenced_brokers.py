"""Several brokers, of which one is out of touch with the tree for a while: who it is when it comes back (M1, M9)."""

import asyncio
import math

import pytest

from odradek.metadata.new_topic import NewTopic
from odradek.metadata.store import Node
from odradek.stores import MemoryStore
from tests.world.scenes import played

pytestmark = pytest.mark.long


class LateStore(MemoryStore):
    """A session that may be told to be late: the tree has it still, and answers."""

    late = False

    @property
    def alive_until(self) -> float:
        return -math.inf if self.late else super().alive_until


class UnsteadyStore(LateStore):
    """Of one that was late: it is late again while the tree is read, for less time than a fence looks away."""

    was_late = False

    async def get(self, path: str) -> Node | None:
        if self.was_late and not self.late:
            self.was_late, self.late = False, True
            asyncio.get_running_loop().call_later(0.05, setattr, self, "late", False)
        return await super().get(path)


class SlowStore(LateStore):
    """One whose answers may take a while."""

    answers_after_s = 0.0

    async def get(self, path: str) -> Node | None:
        await asyncio.sleep(self.answers_after_s)
        return await super().get(path)

    async def children(self, path: str) -> list[str]:
        await asyncio.sleep(self.answers_after_s)
        return await super().children(path)


@played
async def test_a_controller_that_is_cut_off_is_followed_by_another_and_steps_down(world) -> None:
    one, two = await world.started(1), await world.started(2)
    await world.until(lambda: len(one.image.brokers) == 2)
    await one.create_topics([NewTopic(name="a", assignment={0: (1, 2)})])
    one.store.disconnect()
    stepped_down_at = []
    one._fence.on_change(closed=lambda: stepped_down_at.append(world.simulation.clock.monotonic()))
    end = one.store.alive_until
    await world.until(lambda: two.is_controller)
    assert not one.is_controller
    assert [at <= end + 0.01 for at in stepped_down_at] == [True]
    await world.until(lambda: two.image.topics["a"].partitions[0].leader == 2)
    await world.pass_time(60)
    one.store.reconnect()
    await world.until(lambda: 1 in two.image.brokers and not one._fence.is_closed)
    assert (one.is_controller, one.image.controller_id) == (False, 2)
    assert one.image.topics["a"].partitions[0].leader == 2, "it knows before it serves"
    await one.stop()
    await two.stop()


@played
async def test_a_broker_whose_session_is_late_does_not_stand_for_election(world) -> None:
    one = await world.started(1)
    two = await world.started(2, store=LateStore(world.tree))
    two.store.late = True
    await world.until(lambda: two._fence.is_closed)
    world.kill(one)
    await world.pass_time(60)
    assert not two.is_controller
    assert await world.store.get("/controller") is None
    two.store.late = False
    await world.until(lambda: two.is_controller)
    await two.stop()


@played
async def test_a_late_broker_leads_nothing_before_a_new_controller_sent_the_full_state(world) -> None:
    """It has its session still; but what the last controller said may be over."""
    one = await world.started(1)
    two = await world.started(2, store=LateStore(world.tree))
    three = await world.started(3)
    await world.until(lambda: len(one.image.brokers) == 3)
    session = two.store.session_id
    two.store.late = True
    await world.until(lambda: two._fence.is_closed)
    two.listener.refuses_connections = True
    two.listener.abort_connections()
    world.kill(one)
    await world.until(lambda: three.is_controller)
    two.store.late = False
    await world.pass_time(60)
    assert two.image.controller_id == 3
    assert two._fence.is_closed
    two.listener.refuses_connections = False
    await world.until(lambda: not two._fence.is_closed)
    assert two.store.session_id == session
    await two.stop()
    await three.stop()


@played
async def test_a_session_that_is_late_again_while_the_tree_is_read_does_not_leave_the_fence_closed(world) -> None:
    """A tree that takes long to read, or answers that trickle in: nothing else may ever wake the broker."""
    one = await world.started(1)
    two = await world.started(2, store=UnsteadyStore(world.tree))
    two.store.late = True
    await world.until(lambda: two._fence.is_closed)
    await world.pass_time(1)
    two.store.was_late, two.store.late = True, False
    await world.pass_time(60)
    assert not two.store.was_late, "it was read"
    assert not two._fence.is_closed
    await two.stop()
    await one.stop()


@pytest.mark.parametrize("again_late_after", [None, 0.01, 0.1])
@played
async def test_a_lone_broker_leads_again_whenever_its_session_is_proved_while_the_tree_is_read(
    world, again_late_after: float | None
) -> None:
    """No other broker can be elected or wakes it; the session is proved at each moment of its reading."""
    one = await world.started(1, store=SlowStore(world.tree))
    for step in range(40):
        one.store.late = True
        await world.until(lambda: one._fence.is_closed)
        assert not one.is_controller
        await world.pass_time(1)
        one.store.answers_after_s = 0.07
        one.view.mark_all_changed()  # as a connection that is back does: every watch is called
        await world.pass_time(0.015 * step)
        one.store.late = False
        if again_late_after is not None:
            await world.pass_time(0.1)
            one.store.late = True
            await world.pass_time(again_late_after)
            one.store.late = False
        await world.pass_time(5)
        one.store.answers_after_s = 0.0
        assert one.is_controller, f"after {0.015 * step:.3f} s of reading"
        assert not one._fence.is_closed
    await one.stop()


@played
async def test_an_election_is_held_whenever_the_controller_s_node_goes_while_the_tree_is_read(world) -> None:
    one = await world.started(1, store=SlowStore(world.tree))
    for step in range(40):
        one.store.answers_after_s = 0.07
        one.view.mark_configs([])
        await world.pass_time(0.015 * step)
        await world.store.delete("/controller")
        await world.pass_time(5)
        one.store.answers_after_s = 0.0
        assert await world.store.get("/controller") is not None, f"after {0.015 * step:.3f} s of reading"
        assert one.is_controller
        assert one.image.controller_epoch == step + 2
    await one.stop()


@played
async def test_a_lone_broker_that_starts_while_its_session_is_late_stands_for_election_when_it_is_not(world) -> None:
    """Nothing in the tree changes then, so that nobody else wakes it."""
    store = LateStore(world.tree)
    store.late = True
    one = world.broker(1, store=store)
    starting = asyncio.create_task(one.start())
    await world.pass_time(5)
    assert not starting.done()
    store.late = False
    async with asyncio.timeout(10):
        await starting
    assert one.is_controller
    await one.stop()


@played
async def test_a_controller_that_is_elected_again_knows_what_another_one_did_in_between(world) -> None:
    """The other one came and went before this one had looked."""
    one, two, three, four = [await world.started(number, store=SlowStore(world.tree)) for number in (1, 2, 3, 4)]
    await world.until(lambda: len(one.image.brokers) == 4)
    await one.create_topics([NewTopic(name="a", assignment={0: (3, 4)})])
    one.store.answers_after_s = 5.0
    three.store.answers_after_s = four.store.answers_after_s = 9.0
    await world.store.delete("/controller")
    await world.until(lambda: two.is_controller)
    await two.shut_down(3, three.broker_epoch)
    await two.stop()
    await world.pass_time(90)
    assert one.is_controller
    assert one.image.controller_epoch == 3
    assert one.image.topics["a"].partitions[0].leader == four.image.topics["a"].partitions[0].leader == 4
    for each in (one, three, four):
        await each.stop()


@played
async def test_a_registration_that_was_spoilt_is_known_again_when_it_is_mended(world) -> None:
    one = await world.started(1)
    two = await world.started(2, store=SlowStore(world.tree))
    await world.until(lambda: len(one.image.brokers) == 2)
    two.store.answers_after_s = 1.0
    await world.store.set("/brokers/ids/2", b"spoilt")
    three = await world.started(3)
    await world.until(lambda: 3 in one.image.brokers)
    await world.pass_time(60)
    assert one.image.brokers.keys() == {1, 2, 3}
    for each in (one, two, three):
        await each.stop()
