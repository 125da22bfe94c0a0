"""Open pages get the parts that have changed, from one poller per address, which ends with its last viewer."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from odradek.clients.admin.descriptions import ClusterDescription
from odradek.clients.admin.health import ClusterState
from odradek.model import UnavailableError
from odradek.page import app
from odradek.page.settings import PageSettings
from odradek.page.view import Page, PageRequest, View
from odradek.page.views.cluster import ClusterPage, cluster_page
from tests.page.visitor import visiting

pytestmark = pytest.mark.asyncio
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
