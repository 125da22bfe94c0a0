"""The virtual loop: time jumps, order comes from the seed, and waiting for nothing is an error."""

import asyncio
import gc
import random
from typing import Any

import pytest

from odradek.simulation.virtual.clock import VirtualClock
from odradek.simulation.virtual.loop import DeadlockError, LivelockError, VirtualLoop
from odradek.simulation.virtual.trace import Trace


def run(main: Any, seed: int = 0, *, limit_s: float = 3600.0) -> tuple[Any, VirtualClock, Trace]:
    clock, trace = VirtualClock(), Trace()
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock, random.Random(seed), trace, limit_s=limit_s)) as runner:
        return runner.run(main), clock, trace


def test_a_day_of_sleep_takes_no_time_at_all_and_a_day_by_the_clock():
    _, clock, trace = run(asyncio.sleep(86_400), limit_s=100_000)
    assert clock.elapsed_s == 86_400
    assert int(trace.digest.split("-")[0]) < 30


def test_both_clocks_move_with_the_loop():
    clock = VirtualClock()

    async def main() -> tuple[float, int]:
        loop = asyncio.get_running_loop()
        monotonic, wall_ms = loop.time(), clock.now_ms()
        await asyncio.sleep(1.5)
        assert loop.time() == clock.monotonic()
        return clock.monotonic() - monotonic, clock.now_ms() - wall_ms

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock, random.Random(0), Trace())) as runner:
        assert runner.run(main()) == (1.5, 1500)


def test_timers_fire_in_the_order_of_their_times_and_not_after_they_are_cancelled():
    async def main() -> list[int]:
        loop, fired = asyncio.get_running_loop(), list[int]()
        for delay in (3, 1, 2):
            loop.call_later(delay, fired.append, delay)
        loop.call_later(2.5, fired.append, 25).cancel()
        await asyncio.sleep(4)
        return fired

    assert run(main())[0] == [1, 2, 3]


def test_callbacks_keep_the_order_in_which_they_were_registered_under_every_seed():
    async def main() -> list[int]:
        done = list[int]()
        for number in range(20):
            asyncio.get_running_loop().call_soon(done.append, number)
        await asyncio.sleep(0)
        return done

    assert all(run(main(), seed)[0] == list(range(20)) for seed in range(10))


async def _order_of_ten_tasks() -> list[int]:
    order = list[int]()

    async def note(number: int) -> None:
        order.append(number)

    await asyncio.gather(*(note(number) for number in range(10)))
    return order


def test_the_seed_decides_which_of_the_ready_tasks_steps_first():
    orders = [run(_order_of_ten_tasks(), seed)[0] for seed in range(5)]
    assert len({tuple(order) for order in orders}) == 5
    assert all(sorted(order) == list(range(10)) for order in orders)


def test_the_seed_decides_the_order_of_timers_that_are_due_at_one_moment():
    async def main() -> list[int]:
        fired = list[int]()
        for number in range(10):
            asyncio.get_running_loop().call_later(1, fired.append, number)
        await asyncio.sleep(2)
        return fired

    assert len({tuple(run(main(), seed)[0]) for seed in range(5)}) == 5


def test_one_seed_gives_one_trace_and_another_seed_another():
    digests = [run(_order_of_ten_tasks(), seed)[2].digest for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]


def test_tasks_that_a_set_would_order_are_ordered_by_the_seed_alone():
    async def main() -> list[str]:
        ended = list[str]()

        async def wait(name: str) -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.append(name)

        async def fail() -> None:
            raise ValueError

        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as group:  # which cancels its tasks in the order of a set
                for number in range(20):
                    group.create_task(wait(str(number)))
                group.create_task(fail())
        return ended

    keep = [object() for _ in range(100)]  # what else is in memory changes addresses, and so the order of sets
    orders = [run(main(), 3)[0] for _ in keep[:5]]
    assert all(order == orders[0] for order in orders)


def test_waiting_for_an_event_that_cannot_happen_is_an_error_that_names_the_waiting_line():
    async def wait_in_vain() -> None:
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        await asyncio.create_task(wait_in_vain(), name="the forgotten one")

    with pytest.raises(DeadlockError, match=r"the forgotten one: .*wait_in_vain \(.*test_virtual_loop.py:\d+\)"):
        run(main())


def test_a_task_that_waits_for_ever_is_not_collected_but_cancelled_at_the_end():
    ended = []

    async def wait_in_vain() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append("cancelled")

    async def main() -> list[str]:
        asyncio.create_task(wait_in_vain())  # noqa: RUF006
        for _ in range(1100):  # finished tasks are dropped, those that wait are not
            await asyncio.create_task(asyncio.sleep(0))
        gc.collect()
        return list(ended)

    before_the_end, _, _ = run(main())
    assert (before_the_end, ended) == ([], ["cancelled"])


def test_a_loop_that_never_lets_time_pass_is_an_error():
    async def main() -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(LivelockError, match=r"no time passes, most of .*main"):
        run(main())


def test_timers_that_go_on_for_ever_are_an_error_when_the_limit_is_reached():
    async def main() -> None:
        while True:
            await asyncio.sleep(60)

    with pytest.raises(LivelockError, match="over its limit"):
        run(main(), limit_s=600)


def test_threads_are_refused():
    async def main() -> None:
        await asyncio.to_thread(print)

    with pytest.raises(RuntimeError, match="no threads in virtual time"):
        run(main())


def test_time_outs_and_locks_of_asyncio_work_as_on_a_real_loop():
    async def main() -> float:
        loop, lock = asyncio.get_running_loop(), asyncio.Lock()
        started = loop.time()
        async with lock:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5):
                    await lock.acquire()
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(loop.create_future(), 7)
        return loop.time() - started

    assert run(main())[0] == 12
