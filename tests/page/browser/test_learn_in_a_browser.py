"""The view to learn in Chromium."""

import pytest
from playwright.async_api import Page, expect

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.asyncio(loop_scope="session")]
PLAY_LIMIT_MS = 120_000


async def test_a_play_is_stepped_by_clicks_keys_and_by_itself(tab: Page, address: str) -> None:
    await tab.goto(f"{address}/learn/play?script=0:join,3:join,8:end&at=2900", timeout=PLAY_LIMIT_MS)
    now = tab.locator(".now")
    await expect(tab.locator("[data-pending]")).to_have_count(0, timeout=PLAY_LIMIT_MS)
    await tab.get_by_role("link", name="Next change »").click()
    await expect(now).to_contain_text("3.000 s")
    await expect(tab.get_by_text("member-2 starts").first).to_be_visible()
    assert tab.url.endswith("&at=3000")
    await tab.keyboard.press("ArrowRight")
    await expect(now).not_to_contain_text("3.000 s")
    await tab.keyboard.press("ArrowLeft")
    await expect(now).to_contain_text("3.000 s")
    await tab.get_by_label("Speed").select_option("fast")
    await tab.get_by_role("button", name="Play", exact=True).click()
    await expect(now).not_to_contain_text("3.000 s")
    await tab.get_by_role("button", name="Pause").click()
    await tab.get_by_role("link", name="End", exact=True).click()
    await expect(now).to_contain_text("8.000 s")
    await expect(tab.locator("article")).to_have_count(4)
    await expect(tab.get_by_role("row", name="not read none")).to_have_count(4)
    assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_a_lesson_leads_to_the_next_one_and_fits_into_the_window(tab: Page, address: str) -> None:
    await tab.goto(f"{address}/learn")
    await tab.get_by_role("link", name="range: consecutive partitions, topic by topic").click()
    await expect(tab.locator("svg.picture")).to_have_count(2)
    assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await tab.get_by_role("link", name="Next: roundrobin: all partitions in a ring of members").click()
    await expect(tab.get_by_role("heading", level=1)).to_have_text("roundrobin: all partitions in a ring of members")
