"""Every view by axe-core's rules, at both widths: contrast, names, headings, tables, forms; and the contrast in dark.

`NAMES` fills the addresses of all views.
"""

import json
from pathlib import Path
from typing import Final

import axe_playwright_python
import pytest
from playwright.async_api import Page

from odradek.clients import Producer
from odradek.page.views import VIEWS
from odradek.testing import Cluster
from tests.page.members import only_member, reading

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.asyncio(loop_scope="session")]
_AXE: Final = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
NAMES: Final = {
    "topic": "accessible", "partition": "0", "offset": "0", "group": "accessible-group", "section": "2",
    "key": "adaptive", "user": "alice",
}  # fmt: skip
QUERIES: Final = {
    "/topics/{topic}/search": "?text=hello", "/group": "?id={group}", "/group/remove": "&member=m",
    "/security/remove-acl": "?principal=User:a&operation=Read&resource=Topic:t",
    "/security/remove-user": "?user=alice", "/security/remove-quota": "?user=a&key=producer_byte_rate",
    "/security/explain": "?principal=User:a&operation=Read&resource=Topic:t",
}  # fmt: skip
_LOOKS: Final = ((1600, "light", ""), (1600, "dark", ", runOnly: ['color-contrast']"), (360, "light", ""))
"""Widths, colours and options of axe: of a page in other colours, it checks the rule about colours."""
_OTHERS: Final = {"/topics/{topic}/export", "/groups/{name:path}"}
"""Addresses that are no pages."""
_OF_MEMBERS: Final = {"/group/what-if", "/group/members"}
"""Pages of a group with members; the others are of one that is empty, so that its offsets can be reset."""
_REFUSED: Final = {"/group/remove", "/group/undo"}
"""Pages that are here a sentence: the group has no members, and nothing was reset."""


@pytest.mark.parametrize("tab", [1600], indirect=True)
async def test_every_view_follows_the_rules_of_axe(kafka: Cluster, tab: Page, address: str) -> None:
    kafka.create_topic(NAMES["topic"])
    async with Producer(kafka.bootstrap_servers) as producer:
        for value in (b"hello", b'{"hello": [1, null]}', None, b"\xff"):
            await producer.send(NAMES["topic"], value, b"key", headers=[("name", b"value")])
    with kafka.admin() as admin:
        admin.alter_group_offsets(NAMES["group"], {(NAMES["topic"], 0): 1})
    async with reading(kafka, NAMES["topic"], "readers"):
        await only_member(kafka, "readers")
        found = await _violations(tab, address)
    assert not found, "\n".join(found)


async def _violations(tab: Page, address: str) -> list[str]:
    paths = {page.path for view in VIEWS for page in view.pages} - _OTHERS
    tab.set_default_navigation_timeout(120_000)  # a play takes seconds of a core
    found = []
    for path in sorted(paths):
        query = "".join(text for start, text in QUERIES.items() if path == start or path.startswith(f"{start}/"))
        place = f"{path}{query}".format_map(NAMES | ({"group": "readers"} if path in _OF_MEMBERS else {}))
        answer = await tab.goto(address + place)
        assert answer is not None
        assert answer.ok or path in _REFUSED, f"{place}: {answer.status}"
        await tab.evaluate(_AXE)
        for width, scheme, rules in _LOOKS:
            await tab.set_viewport_size({"width": width, "height": 900})
            await tab.emulate_media(color_scheme=scheme)
            result = await tab.evaluate(f"axe.run(document, {{resultTypes: ['violations']{rules}}})")
            found += [
                f"{width} {scheme} {place}: {each['id']}: {each['help']}: {json.dumps(each['nodes'][0]['html'])[:200]}"
                for each in result["violations"]
            ]
    return found
