"""The view of the cluster in Chromium."""

import pytest
from playwright.async_api import Page, expect

from odradek.testing import Cluster

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.asyncio(loop_scope="session")]


async def test_the_cluster_is_shown_and_refreshed_without_a_click(tab: Page, address: str, kafka: Cluster) -> None:
    await tab.goto(address)
    await expect(tab.get_by_role("heading", name="Cluster")).to_be_visible()
    await expect(tab.get_by_role("region", name="Problems")).to_be_visible()
    partitions = tab.locator(".figures div", has_text="Partitions").locator("dd")
    before = int((await partitions.inner_text()).replace(",", ""))
    kafka.create_topic(f"live-{tab.viewport_size['width']}", partitions=2)  # type: ignore[index]
    await expect(partitions).to_have_text(f"{before + 2:,}")
    assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
