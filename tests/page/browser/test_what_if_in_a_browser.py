"""The views What-if and Pipelines in Chromium."""

import pytest
from playwright.async_api import Page, expect

from odradek.testing import Cluster
from tests.page.members import only_member, reading

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.asyncio(loop_scope="session")]
FITS = "document.documentElement.scrollWidth <= innerWidth"


async def test_members_and_partitions_are_added_by_clicking(tab: Page, address: str, kafka: Cluster) -> None:
    name = f"supposed-{tab.viewport_size['width']}"  # type: ignore[index]
    kafka.create_topic(name, partitions=4)
    async with reading(kafka, name, name):
        await only_member(kafka, name)
        await tab.goto(f"{address}/what-if?q={name}")
        await tab.get_by_role("link", name=name).click()
        await expect(tab.get_by_text("0 partitions move.")).to_be_visible()
        await tab.get_by_role("link", name="Add a member").click()
        await expect(tab.get_by_text("2 partitions move.")).to_be_visible()
        await tab.get_by_role("link", name=f"Add 10 to {name}").click()
        await expect(tab.get_by_text("10 partitions new.")).to_be_visible()
        await tab.get_by_role("link", name="sticky", exact=True).click()
        await expect(tab.get_by_text(f"10 more partitions of {name}")).to_be_visible()
        assert await tab.evaluate(FITS)


async def test_without_pipelines_the_view_says_how_to_name_them(tab: Page, address: str) -> None:
    await tab.goto(f"{address}/pipelines")
    await expect(tab.get_by_text("odradek page --pipelines DIR")).to_be_visible()
    assert await tab.evaluate(FITS)
