"""The views of topics in Chromium."""

import asyncio
import json

import pytest
from playwright.async_api import Page, expect

from odradek.clients import Admin, Producer
from odradek.page.app import PageApp
from odradek.page.server import PageServer
from odradek.page.settings import PageSettings
from odradek.runtime import system_runtime
from odradek.stores import MemoryStore, MemoryTree
from odradek.testing import Cluster
from tests.page.members import only_member, reading

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


# ---- The view of the cluster -----------------------------------------------------------------------------------------


async def test_the_cluster_is_shown_and_refreshed_without_a_click(tab: Page, address: str, kafka: Cluster) -> None:
    await tab.goto(address)
    await expect(tab.get_by_role("heading", name="Cluster")).to_be_visible()
    await expect(tab.get_by_role("region", name="Problems")).to_be_visible()
    partitions = tab.locator(".figures div", has_text="Partitions").locator("dd")
    before = int((await partitions.inner_text()).replace(",", ""))
    kafka.create_topic(f"live-{tab.viewport_size['width']}", partitions=2)  # type: ignore[index]
    await expect(partitions).to_have_text(f"{before + 2:,}")
    assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")


# ---- The view of the metadata tree -----------------------------------------------------------------------------------


async def test_one_walks_down_the_tree_and_sees_a_node_change(tab: Page) -> None:
    tree = MemoryTree()
    store = MemoryStore(tree)
    await store.create("/controller", b'{"version":1,"brokerid":1,"timestamp":"1700000000000"}', ephemeral=True)
    runtime = system_runtime()
    settings = PageSettings(open_tree=lambda: MemoryStore(tree), interval_s=0.1)
    server = PageServer(PageApp(settings, runtime), runtime)
    address = await server.open("127.0.0.1", 0)
    try:
        await tab.goto(f"{address}metadata")
        await tab.get_by_role("link", name="controller").click()
        await expect(tab.get_by_role("heading", name="/controller")).to_be_visible()
        await expect(tab.get_by_text("Broker 1 is the controller.")).to_be_visible()
        await expect(tab.get_by_text("ephemeral, of session")).to_be_visible()
        await store.set("/controller", b'{"version":1,"brokerid":2}')
        await expect(tab.get_by_text("Broker 2 is the controller.")).to_be_visible()
        assert await tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    finally:
        await tab.close()
        await server.close()
        await store.close()


# ---- The view to learn -----------------------------------------------------------------------------------------------

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


# ---- What-if and pipelines -------------------------------------------------------------------------------------------

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


# ---- Security --------------------------------------------------------------------------------------------------------


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


# ---- Groups ----------------------------------------------------------------------------------------------------------


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


# ---- Messages --------------------------------------------------------------------------------------------------------


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
