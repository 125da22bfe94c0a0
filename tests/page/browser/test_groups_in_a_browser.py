"""The views of groups in Chromium: a rebalance appears in an open page, and a reset is made and undone by clicking."""

import pytest
from playwright.async_api import Page, expect

from odradek.clients import Admin
from odradek.testing import Cluster
from tests.page.members import reading

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.asyncio(loop_scope="session")]

FITS = "document.documentElement.scrollWidth <= innerWidth"


def name_of(tab: Page, name: str) -> str:
    """A name of its own for each width, as the broker is shared."""
    return f"{name}-{tab.viewport_size['width']}"  # type: ignore[index]


async def test_a_rebalance_appears_in_an_open_page(tab: Page, address: str, kafka: Cluster) -> None:
    name = name_of(tab, "opened")
    kafka.create_topic(name, partitions=4)
    async with reading(kafka, name, name):
        await tab.goto(f"{address}/groups?q={name}")
        await tab.get_by_role("link", name=name).click()
        await expect(tab.get_by_text("Stable")).to_be_visible(timeout=20_000)
        async with reading(kafka, name, name):
            await expect(tab.get_by_text("What caused the last rebalance")).to_be_visible(timeout=20_000)
            await expect(tab.get_by_role("img", name="Who reads which partition")).to_be_visible()
            assert await tab.evaluate(FITS)
            await tab.get_by_role("link", name="Members").click()
            await expect(tab.get_by_role("img", name="What these members hold")).to_be_visible()
            assert await tab.evaluate(FITS)


async def test_offsets_are_reset_after_a_preview_and_the_reset_is_undone(
    tab: Page, address: str, kafka: Cluster
) -> None:
    name = name_of(tab, "clicked")
    kafka.create_topic(name)
    async with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        await admin.alter_group_offsets(name, {(name, 0): 7})
        await tab.goto(f"{address}/group/reset?id={name}")
        await tab.get_by_role("button", name="Preview").click()
        await expect(tab.get_by_text("7 records will be read again")).to_be_visible()
        assert await tab.evaluate(FITS)
        await tab.get_by_label("Type the group").fill(name)
        await tab.get_by_role("button", name="Reset the offsets").click()
        await expect(tab.get_by_text("can be undone")).to_be_visible()
        await tab.get_by_role("button", name="Undo the reset").click()
        await expect(tab.get_by_text("The reset is undone")).to_be_visible()
        assert (await admin.describe_group(name)).partitions[0].committed_offset == 7
