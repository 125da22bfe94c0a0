"""The view of the metadata tree in Chromium: a node is opened, and changes while it is shown."""

import pytest
from playwright.async_api import Page, expect

from odradek.page.app import PageApp
from odradek.page.server import PageServer
from odradek.page.settings import PageSettings
from odradek.runtime import system_runtime
from odradek.stores import MemoryStore, MemoryTree

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.asyncio(loop_scope="session")]


async def test_one_walks_down_the_tree_and_sees_a_node_change(tab: Page) -> None:
    tree = MemoryTree()
    store = MemoryStore(tree)
    await store.create("/controller", b'{"version":1,"brokerid":1,"timestamp":"1700000000000"}', ephemeral=True)
    runtime = system_runtime()
    settings = PageSettings(open_tree=lambda: MemoryStore(tree), interval_s=0.1)
    server = PageServer(PageApp(settings, runtime), runtime)
    address = await server.open("127.0.0.1", 0)
    try:
        await tab.goto(f"{address}metadata")
        await tab.get_by_role("link", name="controller").click()
        await expect(tab.get_by_role("heading", name="/controller")).to_be_visible()
        await expect(tab.get_by_text("Broker 1 is the controller.")).to_be_visible()
        await expect(tab.get_by_text("ephemeral, of session")).to_be_visible()
        await store.set("/controller", b'{"version":1,"brokerid":2}')
        await expect(tab.get_by_text("Broker 2 is the controller.")).to_be_visible()
        assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    finally:
        await tab.close()
        await server.close()
        await store.close()
