"""Make the pictures of docs/page.md: screenshots of a page in Chromium, of a cluster with a group and a dead broker.

`make page-pictures` runs it. Times and offsets differ from run to run.
"""

import asyncio
import json
import shutil
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from playwright.async_api import Browser, ViewportSize, async_playwright

from odradek.clients import Consumer, Producer
from odradek.page.app import PageApp
from odradek.page.server import PageServer
from odradek.page.settings import PageSettings
from odradek.runtime import system_runtime
from odradek.testing import Cluster

_FOLDER: Final = Path(__file__).parents[3] / "docs" / "pictures"
_SIZE: Final[ViewportSize] = {"width": 1100, "height": 720}
_PLAY: Final = "0:join,0:join,0:join,12:die-2,40:end"
_CITIES: Final = ("Zürich", "Vienna", "Graz", "Basel")


async def main() -> None:
    """Write each picture."""
    config = {"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "500"}
    config |= {"group.rebalance.journal.enable": "true"}
    with Cluster(brokers=3, config=config) as cluster:
        cluster.create_topic("orders", partitions=6, replication_factor=3)
        cluster.create_topic("payments", partitions=3, replication_factor=3)
        servers = cluster.bootstrap_servers
        async with Producer(servers) as producer:
            for number in range(300):
                order = {"id": number, "city": _CITIES[number % 4], "items": [{"sku": "A-1", "count": number % 7 + 1}]}
                headers = [("trace", b"%08x" % (number * 7919))]
                await producer.send(
                    "orders", json.dumps(order).encode(), b"customer-%d" % (number % 9), headers=headers
                )
        runtime = system_runtime()
        server = PageServer(PageApp(PageSettings(client={"bootstrap_servers": servers}), runtime), runtime)
        address = (await server.open("127.0.0.1", 0)).rstrip("/")
        async with async_playwright() as playwright, AsyncExitStack() as stack:
            browser = await playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
            await _take(browser, f"{address}/topics/orders/messages?key=customer-3", "page-messages.png", "customer-3")
            for name in ("billing-1", "billing-2", "billing-3"):
                consumer = await stack.enter_async_context(
                    Consumer("orders", bootstrap_servers=servers, group_id="billing", client_id=name)
                )
                task = asyncio.create_task(_read(consumer))
                stack.callback(task.cancel)
            await _take(browser, f"{address}/group?id=billing", "page-group.png", "What caused")
            await _take(
                browser,
                f"{address}/learn/play?script={_PLAY}&partitions=6&seed=0&at=14000",
                "page-learn.png",
                "What the whole play costs",
            )
            cluster.kill(2)
            await _take(browser, f"{address}/", "page-cluster.png", "in sync: ")
            await browser.close()
        await server.close()


async def _read(consumer: Consumer) -> None:
    while True:
        await consumer.poll()


async def _take(browser: Browser, address: str, name: str, text: str) -> None:
    """Write a picture of an address when it shows `text`."""
    context = await browser.new_context(viewport=_SIZE, timezone_id="Europe/Zurich", color_scheme="light")
    tab = await context.new_page()
    await tab.goto(address, timeout=120_000)
    await tab.get_by_text(text).first.wait_for(timeout=60_000)
    await tab.screenshot(path=_FOLDER / name)
    await context.close()


if __name__ == "__main__":
    asyncio.run(main())
