"""Debian's Chromium, driven by Playwright: one browser for all tests, a page of the session's broker."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from typing import Final

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright

from odradek.page.app import PageApp
from odradek.page.server import PageServer
from odradek.page.settings import PageSettings
from odradek.runtime import system_runtime
from odradek.stores import MemoryStore, MemoryTree
from odradek.testing import Cluster

WIDTHS: Final = (360, 1600)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium() -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def address(kafka: Cluster) -> AsyncIterator[str]:
    """The address of a page that shows the session's broker, without a slash at its end."""
    runtime = system_runtime()
    client, tree = {"bootstrap_servers": kafka.bootstrap_servers}, MemoryTree()
    settings = PageSettings(client=client, interval_s=0.1, open_tree=lambda: MemoryStore(tree))
    server = PageServer(PageApp(settings, runtime), runtime)
    shown = await server.open("127.0.0.1", 0)
    yield shown.rstrip("/")
    await server.close()
    await asyncio.sleep(0)  # transports close in the next iteration


@pytest_asyncio.fixture(params=WIDTHS, loop_scope="session")
async def tab(request: pytest.FixtureRequest, chromium: Browser) -> AsyncIterator[Page]:
    """A tab of each width; an error of a script or of the Content-Security-Policy fails the test."""
    context = await chromium.new_context(viewport={"width": request.param, "height": 900}, timezone_id="Asia/Tokyo")
    tab = await context.new_page()
    faults: list[str] = []
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    yield tab
    await context.close()
    assert faults == []
