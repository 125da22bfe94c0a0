"""Several clusters in one page: each has addresses, sessions and logins of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from odradek.clients import Admin
from odradek.page.app import PageApp
from odradek.page.clusters import ClusterPages
from odradek.page.settings import PageSettings
from odradek.runtime import system_runtime
from odradek.testing import Cluster
from tests.page.visitor import Visitor

pytestmark = pytest.mark.asyncio
AWAY = {"bootstrap_servers": "127.0.0.1:1", "default_api_timeout_ms": 50}


@asynccontextmanager
async def page_of(
    *, login: bool = False, **clients: dict[str, Any]
) -> AsyncIterator[tuple[Visitor, dict[str, PageApp]]]:
    pages = {
        name: PageApp(
            PageSettings(client=client, cluster=name, clusters=tuple(clients), requires_login=login), system_runtime()
        )
        for name, client in clients.items()
    }
    together = ClusterPages(pages)
    try:
        yield Visitor(cast("PageApp", together)), pages
    finally:
        await together.close()


async def test_each_cluster_has_its_addresses_and_leads_to_the_others(kafka: Cluster) -> None:
    async with page_of(here={"bootstrap_servers": kafka.bootstrap_servers}, away=AWAY) as (visitor, pages):
        for address in ("/", "/topics", "/clusters/nowhere/", "/clusters/here"):
            assert (await visitor.get(address)).headers["location"] == "/clusters/here/"
        text = (await visitor.get("/clusters/here/topics?q=a")).text
        assert 'href="/clusters/here/groups"' in text
        assert 'src="/clusters/here/static/page.js?v=' in text
        assert '<a href="/clusters/here/" aria-current="true">here</a>' in text
        assert '<a href="/clusters/away/">away</a>' in text
        assert (await visitor.get("/clusters/here/groups/a")).headers["location"] == "/clusters/here/group?id=a"
        away = await visitor.get("/clusters/away/topics")
        assert (away.status, 'href="/clusters/away/topics">Try again</a>' in away.text) == (503, True)
        token = pages["here"].sessions.find("", "8080")
        assert token is not None
        done = await visitor.post("/clusters/here/create-topic", {"name": "of-one-cluster"}, token.csrf_token)
        assert done.headers["location"].startswith("/clusters/here/topics/of-one-cluster")
        assert (await visitor.post("/clusters/away/create-topic", {"name": "x"}, token.csrf_token)).status == 403


async def test_parts_that_are_sent_later_have_the_addresses_of_their_cluster(kafka: Cluster) -> None:
    servers = {"bootstrap_servers": kafka.bootstrap_servers}
    kafka.create_topic("linked")
    async with Admin(**servers) as admin:
        await admin.alter_group_offsets("linked", {("linked", 0): 0})
    async with (
        page_of(here=servers, away=AWAY) as (visitor, _),
        visitor.watching("/clusters/here/groups?q=linked") as parts,
    ):
        async for part in parts:
            if part["id"] == "list":
                assert '<a href="/clusters/here/group?id=linked">' in part["html"]
                break


async def test_a_login_at_one_cluster_is_none_at_another(secure_kafka: Cluster) -> None:
    client = secure_kafka.settings("alice")
    async with page_of(login=True, first=client, second=client) as (visitor, pages):
        refused = await visitor.get("/clusters/first/topics")
        assert refused.headers["location"] == "/clusters/first/login?next=%2Ftopics"
        form = {"user": "alice", "password": "alice-secret"}
        token = pages["first"].sessions.login_token
        done = await visitor.post("/clusters/first/login?next=%2Ftopics", form, token)
        assert (done.status, done.headers["location"]) == (303, "/clusters/first/topics")
        assert (await visitor.get("/clusters/first/topics")).status == 200
        assert (await visitor.get("/clusters/second/topics")).status == 303
