"""Open pages share readings of the cluster, so that the number of viewers does not matter to its brokers."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest

from odradek.clients import Admin
from odradek.clients.admin.descriptions import ClusterDescription
from odradek.clients.admin.health import ClusterState
from odradek.model import UnavailableError
from odradek.page import app
from odradek.page import readings as page_readings
from odradek.page.readings import Readings
from odradek.page.settings import PageSettings
from odradek.page.view import Page, PageRequest, View
from odradek.page.views.cluster import ClusterPage, cluster_page
from odradek.runtime import system_runtime
from odradek.simulation.virtual.clock import VirtualClock
from odradek.testing import Cluster
from tests.page.visitor import visiting

pytestmark = pytest.mark.asyncio
_LONG_S = 3600.0


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the admin client is asked for what lists show."""
    found: Counter[str] = Counter()

    def counted(name: str) -> Any:
        method = getattr(Admin, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            found[name] += 1
            return method(*args, **kwargs)

        return call

    for name in ("list_topics", "describe_log_dirs", "describe_cluster", "list_groups"):
        monkeypatch.setattr(Admin, name, counted(name))
    return found


async def test_viewers_of_many_addresses_cause_one_reading(kafka: Cluster, calls: Counter[str]) -> None:
    settings = PageSettings(client={"bootstrap_servers": kafka.bootstrap_servers}, interval_s=_LONG_S)
    addresses = ["/", *(f"/topics?page={number}" for number in range(1, 99)), "/groups", "/groups?q=a"]
    async with visiting(settings) as visitor:
        async with AsyncExitStack() as stack:
            streams = [await stack.enter_async_context(visitor.watching(each)) for each in addresses]
            for parts in streams:
                assert (await anext(parts))["id"] == "problem"
            assert len(visitor.app.live) == len(addresses)
        moves = {"describe_log_dirs": 1, "describe_cluster": 1}
        lists = {"list_topics": 1, "describe_log_dirs": 1, "describe_cluster": 1, "list_groups": 1}
        assert calls == Counter(lists) + Counter(moves)
        assert "<h2>Brokers</h2>" in (await visitor.get("/")).text
        assert calls["list_topics"] == 1
        await visitor.post("/create-topic", {"name": "read-after-a-change"})
        assert ">read-after-a-change</a>" in (await visitor.get("/topics?q=read-after")).text
        assert calls["list_topics"] == 2


async def test_a_value_is_read_again_after_its_interval_and_an_error_at_once() -> None:
    readings, made = Readings(system_runtime().clock), Counter[str]()

    async def read() -> int:
        await asyncio.sleep(0)
        made["readings"] += 1
        if made["readings"] == 1:
            raise UnavailableError("no broker answers")
        return made["readings"]

    async def several(interval_s: float) -> list[Any]:
        return await asyncio.gather(*(readings.get("key", read, interval_s) for _ in range(3)), return_exceptions=True)

    assert {str(each) for each in await several(_LONG_S)} == {"no broker answers"}
    assert await several(0.0) == [2, 2, 2]
    assert await several(_LONG_S) == [3, 3, 3]
    assert await several(_LONG_S) == [3, 3, 3]
    readings.forget()
    assert await several(_LONG_S) == [4, 4, 4]
    await readings.close()


async def test_a_reading_goes_on_without_the_viewer_that_began_it_and_ends_with_the_page() -> None:
    readings, goes_on = Readings(system_runtime().clock), asyncio.Event()

    async def read() -> str:
        await goes_on.wait()
        return "value"

    first, second = (asyncio.create_task(readings.get("key", read, _LONG_S)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    goes_on.set()
    assert await second == "value"
    goes_on.clear()
    readings.forget()
    last = asyncio.create_task(readings.get("key", read, _LONG_S))
    await asyncio.sleep(0)
    await readings.close()
    with pytest.raises(asyncio.CancelledError):
        await last


async def test_closing_cancels_a_reading_that_was_forgotten() -> None:
    readings, is_cancelled = Readings(system_runtime().clock), asyncio.Event()

    async def read() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            is_cancelled.set()
            raise

    viewer = asyncio.create_task(readings.get("key", read, _LONG_S))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    readings.forget()
    await readings.close()
    assert is_cancelled.is_set()
    await asyncio.gather(viewer, return_exceptions=True)


async def test_while_a_reading_is_late_the_last_value_is_known_for_some_time(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_LONGEST_WAIT_S", "_MOMENT_S"):
        monkeypatch.setattr(page_readings, name, 0.0)
    clock, answers = VirtualClock(), asyncio.Event()
    readings, made = Readings(clock), Counter[str]()

    async def read() -> int:
        made["begun"] += 1
        await answers.wait()
        if made["begun"] == 3:
            raise UnavailableError("no broker answers")
        return made["begun"]

    async def looked() -> tuple[int | None, float]:
        value = await readings.known("key", read, 1.0)
        return value, readings.silent_s("key")

    assert await looked() == (None, 0.0)  # not known yet
    clock.advance(1.0)
    assert await looked() == (None, 1.0)
    answers.set()
    assert await readings.get("key", read, 1.0) == 1
    answers.clear()
    clock.advance(4.0)  # the pause after a reading of one second
    assert await looked() == (1, 2.0)  # no request was open for longer than that
    clock.advance(18.0)
    assert await looked() == (None, 20.0)  # too old
    answers.set()
    assert await readings.get("key", read, 1.0) == 2
    answers.clear()
    clock.advance(10.0)
    assert await looked() == (2, 2.0)
    answers.set()
    with pytest.raises(UnavailableError):
        await readings.get("key", read, 1.0)
    assert (readings.silent_s("key"), made["begun"]) == (2.0, 3)  # an error is no answer
    clock.advance(21.0)
    answers.clear()
    assert await looked() == (None, 0.0)  # nobody has asked meanwhile
    await readings.close()


# ---- Live parts ------------------------------------------------------------------------------------------------------

QUICK = PageSettings(interval_s=0.0)


def _page(cluster_id: str) -> ClusterPage:
    cluster = ClusterDescription(cluster_id=cluster_id, controller_id=0, brokers=())
    return cluster_page(ClusterState(cluster=cluster, topics=(), log_dirs={}, min_isr={}))


class Source:
    """Data that a test changes; it counts how often it is read."""

    def __init__(self) -> None:
        self.readings = 0
        self.answer: ClusterPage | UnavailableError = _page("first")

    async def __call__(self, _asked: PageRequest) -> ClusterPage:
        self.readings += 1
        if isinstance(self.answer, UnavailableError):
            raise self.answer
        return self.answer

    @property
    def view(self) -> View:
        pages = (Page(path="/", template="cluster.html", data=self, live=("state",)),)
        return View(title="Cluster", path="/", pages=pages)


async def test_a_part_is_sent_when_it_changes() -> None:
    source = Source()
    async with visiting(QUICK, (source.view,)) as visitor, visitor.watching("/") as parts:
        sent = [await anext(parts), await anext(parts)]
        assert [each["id"] for each in sent] == ["problem", "state"]
        assert "first" in sent[1]["html"]
        source.answer = _page("second")
        changed = await anext(parts)
        assert changed["id"] == "state"
        assert "second" in changed["html"]


async def test_a_cluster_that_is_away_is_a_sentence_and_the_page_recovers_by_itself() -> None:
    source = Source()
    async with visiting(QUICK, (source.view,)) as visitor:
        source.answer = UnavailableError("no broker answers")
        answer = await visitor.get("/")
        assert answer.status == 503
        assert "no broker answers" in answer.text
        async with visitor.watching("/") as parts:
            assert "no broker answers" in (await anext(parts))["html"]
            source.answer = _page("again")
            assert await anext(parts) == {"id": "problem", "html": ""}
            assert "again" in (await anext(parts))["html"]


async def test_viewers_of_one_address_share_a_poller_that_ends_with_the_last_of_them() -> None:
    source = Source()
    async with visiting(QUICK, (source.view,)) as visitor:
        async with visitor.watching("/") as first, visitor.watching("/") as second:
            assert [(await anext(each))["id"] for each in (first, second)] == ["problem", "problem"]
            assert len(visitor.app.live) == 1
            async with visitor.watching("/?q=x") as other:
                await anext(other)
                assert len(visitor.app.live) == 2
            assert len(visitor.app.live) == 1
        assert len(visitor.app.live) == 0
        before = source.readings
        await asyncio.sleep(0)
        assert source.readings == before


async def test_the_addresses_that_a_session_watches_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_MOST_POLLERS", 1)
    async with visiting(QUICK, (Source().view,)) as visitor:
        async with visitor.watching("/") as parts:
            await anext(parts)
            assert (await visitor.get("/?q=x", accept="text/event-stream")).status == 429
        async with visitor.watching("/?q=x") as parts:
            assert (await anext(parts))["id"] == "problem"


async def test_a_page_with_updates_of_its_own_ends_its_stream_with_them() -> None:
    closed = asyncio.Event()

    async def updates(_asked: PageRequest) -> AsyncIterator[ClusterPage]:
        try:
            yield _page("one")
            yield _page("two")
        finally:
            closed.set()

    page = Page(path="/", template="cluster.html", data=Source(), live=("state",), updates=updates)
    async with visiting(QUICK, (View(title="", path="/", pages=(page,)),)) as visitor, visitor.watching("/") as parts:
        html = "".join([each["html"] async for each in parts])
    assert "two" in html
    assert closed.is_set()
