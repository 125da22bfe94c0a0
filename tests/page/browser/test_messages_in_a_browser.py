"""Messages in a browser: new ones appear by themselves, a search shows its progress, hostile values stay text."""

import json

import pytest
from playwright.async_api import Page, expect

from odradek.clients import Producer
from odradek.testing import Cluster

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.asyncio(loop_scope="session")]


async def write(kafka: Cluster, topic: str, *values: bytes) -> None:
    async with Producer(kafka.bootstrap_servers) as producer:
        for value in values:
            await producer.send(topic, value, b"key")


async def test_a_new_message_appears_by_itself(kafka: Cluster, tab: Page, address: str) -> None:
    topic = f"appears-{tab.viewport_size['width']}"  # type: ignore[index]
    kafka.create_topic(topic)
    await tab.goto(f"{address}/topics/{topic}/messages")
    await expect(tab.get_by_text("The topic has no messages yet")).to_be_visible()
    await write(kafka, topic, b'{"order": {"id": 42}}')
    await expect(tab.locator(".json-number")).to_have_text("42")


async def test_hostile_values_do_not_run_and_do_not_widen_the_page(kafka: Cluster, tab: Page, address: str) -> None:
    topic = f"hostile-{tab.viewport_size['width']}"  # type: ignore[index]
    kafka.create_topic(topic)
    hostile = "<img src=x onerror=alert(1)>\u202e\x1b[31m" + "x" * 5_000
    await write(kafka, topic, hostile.encode(), json.dumps({hostile: [hostile]}).encode(), bytes(range(256)))
    await tab.goto(f"{address}/topics/{topic}/messages")
    await expect(tab.locator(".messages > li")).to_have_count(3)
    assert await tab.locator("main img").count() == 0
    assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_a_search_finds_a_key_and_a_dialog_writes_a_message(kafka: Cluster, tab: Page, address: str) -> None:
    topic = f"search-{tab.viewport_size['width']}"  # type: ignore[index]
    kafka.create_topic(topic)
    await write(kafka, topic, *(b"value %d" % number for number in range(50)))
    await tab.goto(f"{address}/topics/{topic}/messages")
    await tab.get_by_role("link", name="Write a message").click()
    dialog = tab.get_by_role("dialog")  # the page behind it has a field "Key", too
    await dialog.get_by_label("Key", exact=True).fill("wanted")
    await dialog.get_by_label("Value", exact=True).fill("hello")
    await dialog.get_by_role("button", name="Write").click()
    await expect(tab.get_by_role("heading", level=1)).to_have_text("Partition 0, offset 50")
    await tab.goto(f"{address}/topics/{topic}/messages")
    await tab.get_by_placeholder("exactly").fill("wanted")
    await tab.get_by_role("button", name="Show").click()
    await expect(tab.get_by_text("1 found in 51 messages")).to_be_visible()
