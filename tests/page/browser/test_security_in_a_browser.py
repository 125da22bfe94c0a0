"""The views of security in Chromium: an ACL is added, explained and removed; a user is added."""

import pytest
from playwright.async_api import Page, expect

from odradek.page.app import PageApp
from odradek.page.server import PageServer
from odradek.page.settings import PageSettings
from odradek.runtime import system_runtime
from odradek.testing import Cluster

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.asyncio(loop_scope="session")]


async def test_an_acl_and_a_user_are_changed_in_dialogs(tab: Page) -> None:
    runtime = system_runtime()
    with Cluster(security="sasl_plaintext", users={"alice": "alice-secret"}, acls=()) as cluster:
        server = PageServer(PageApp(PageSettings(client=cluster.settings(), interval_s=0.1), runtime), runtime)
        address = await server.open("127.0.0.1", 0)
        try:
            await _change(tab, address)
        finally:
            await tab.close()
            await server.close()


async def _change(tab: Page, address: str) -> None:
    dialog = tab.get_by_role("dialog")
    await tab.goto(f"{address}security")
    await tab.get_by_role("link", name="Add an ACL").click()
    await dialog.get_by_label("Principal").fill("User:carol")
    await dialog.get_by_label("Name of the resource").fill("flights")
    await dialog.get_by_role("button", name="Add").click()
    await expect(tab.get_by_role("rowheader", name="User:carol")).to_be_visible()
    assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await tab.get_by_role("link", name="Explain").click()
    await tab.get_by_label("Principal").fill("User:carol")
    await tab.get_by_label("Name of the resource").fill("flights")
    await tab.get_by_role("button", name="Explain").click()
    await expect(tab.get_by_text("an ACL allows it")).to_be_visible()
    assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    await tab.get_by_role("link", name="ACLs", exact=True).click()
    await tab.get_by_role("link", name="Remove").last.click()
    await dialog.get_by_label("Type User:carol again").fill("User:carol")
    await dialog.get_by_role("button", name="Remove").click()
    await expect(tab.get_by_text("Removed: Allow User:carol")).to_be_visible()
    await tab.get_by_role("link", name="Users").click()
    await tab.get_by_role("link", name="Add a user").click()
    await dialog.get_by_label("User", exact=True).fill("dora")
    for label in ("Password", "Password again"):
        await dialog.get_by_label(label, exact=True).fill("dora-secret")
    await dialog.get_by_role("button", name="Save").click()
    await expect(tab.get_by_role("rowheader", name="dora")).to_be_visible()
    assert "dora-secret" not in tab.url + await tab.content()
