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


async def test_a_message_is_a_line_that_a_click_or_enter_opens_and_that_stays_while_others_come(
    kafka: Cluster, tab: Page, address: str
) -> None:
    topic = f"lines-{tab.viewport_size['width']}"  # type: ignore[index]
    kafka.create_topic(topic, partitions=2)
    await write(kafka, topic, *(json.dumps({"id": number, "text": "x y " * 300}).encode() for number in range(60)))
    await tab.goto(f"{address}/topics/{topic}/messages")
    await expect(tab.get_by_text("Live", exact=True)).to_be_visible()
    lines = tab.locator(".messages > li")
    await expect(lines).to_have_count(50)
    heights = await lines.evaluate_all("all => all.map(each => each.offsetHeight)")
    assert max(heights) <= 28, heights
    assert await tab.evaluate("document.documentElement.scrollHeight") < 50 * 28 + 600
    assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    first = tab.locator(".record").nth(3)
    name = await first.get_attribute("id")
    await first.locator("summary").first.click()
    await expect(first.get_by_text("Timestamp type")).to_be_visible()
    await expect(first.locator(".json-number")).to_be_visible()
    await expect(tab.get_by_text("Paused", exact=True)).to_be_visible()
    await write(kafka, topic, b"later")
    await tab.get_by_role("button", name="Go on").click()
    await expect(lines.first).to_contain_text("later")
    assert await tab.locator(".record[open]").get_attribute("id") == name
    await tab.locator(".record > summary").first.focus()
    await tab.keyboard.press("Enter")
    await expect(tab.locator(".record[open]")).to_have_count(2)


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
