"""The views of topics in Chromium."""

import asyncio

import pytest
from playwright.async_api import Page, expect

from odradek.testing import Cluster

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.asyncio(loop_scope="session")]


async def test_a_topic_is_created_and_deleted_in_dialogs(tab: Page, address: str) -> None:
    name = f"browsed-{tab.viewport_size['width']}"  # type: ignore[index]
    await tab.goto(f"{address}/topics")
    await tab.get_by_role("link", name="Create a topic").click()
    dialog = tab.get_by_role("dialog")
    await dialog.get_by_label("Name").fill(name)
    await dialog.get_by_label("Partitions").fill("3")
    await dialog.get_by_role("button", name="Create").click()
    await expect(tab.get_by_role("heading", name=f"Topic {name}")).to_be_visible()
    assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await tab.get_by_text("keys have Kafka's default").click()
    await tab.get_by_role("row", name="max.message.bytes").get_by_role("link", name="Change").click()
    await expect(dialog.get_by_label("Value")).to_have_value("1048588")
    await dialog.get_by_label("Value").fill("2097152")
    await dialog.get_by_role("button", name="Set").click()
    await expect(tab.get_by_role("row", name="max.message.bytes")).to_contain_text("2097152, 2 MiB")
    await tab.get_by_role("link", name="Delete").click()
    await dialog.get_by_label("Type the topic's name again").fill(name)
    await dialog.get_by_role("button", name="Delete the topic").click()
    await expect(tab.get_by_text(f"Topic {name} is deleted.")).to_be_visible()
    assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_the_filter_works_without_a_script_too(tab: Page, address: str, kafka: Cluster) -> None:
    name = f"filtered-{tab.viewport_size['width']}"  # type: ignore[index]
    kafka.create_topic(name)
    await tab.route("**/page.js*", lambda route: route.fulfill(content_type="text/javascript", body=""))
    await tab.goto(f"{address}/topics")
    await tab.get_by_label("Name").fill(name)
    await tab.get_by_role("button", name="Filter").click()
    async with asyncio.timeout(30):
        while not await tab.get_by_text("1 topic", exact=True).is_visible():  # the list may be an interval old
            await tab.get_by_role("button", name="Filter").click()
    await tab.get_by_role("link", name=name, exact=True).click()
    await tab.get_by_role("link", name="Delete").click()
    await expect(tab.get_by_label("Type the topic's name again")).to_be_visible()
