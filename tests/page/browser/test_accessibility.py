"""Every view by axe-core's rules, at both widths: contrast, names, headings, tables, forms; and the contrast in dark.

`NAMES` fills the addresses of all views.
"""

import json
from pathlib import Path
from typing import Final

import axe_playwright_python
import pytest
from members import only_member, reading
from playwright.async_api import Page

from odradek.clients import Producer
from odradek.page.views import VIEWS
from odradek.testing import Cluster

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
_RULES: Final = {
    360: {"light": ""},
    1600: {"light": "", "dark": ", runOnly: ['color-contrast']"},
}
"""The options of axe at a width: of a page in other colours, it checks the rule about colours."""
_OTHERS: Final = {"/topics/{topic}/export"}
"""Addresses that are no pages."""
_OF_MEMBERS: Final = {"/group/what-if", "/group/members"}
"""Pages of a group with members; the others are of one that is empty, so that its offsets can be reset."""
_REFUSED: Final = {"/group/remove", "/group/undo"}
"""Pages that are here a sentence: the group has no members, and nothing was reset."""


async def test_every_view_follows_the_rules_of_axe(kafka: Cluster, tab: Page, address: str) -> None:
    width = tab.viewport_size["width"] if tab.viewport_size else 0
    names = {**NAMES, "topic": f"accessible-{width}", "group": f"accessible-group-{width}"}
    kafka.create_topic(names["topic"])
    async with Producer(kafka.bootstrap_servers) as producer:
        for value in (b"hello", b'{"hello": [1, null]}', None, b"\xff"):
            await producer.send(names["topic"], value, b"key", headers=[("name", b"value")])
    with kafka.admin() as admin:
        admin.alter_group_offsets(names["group"], {(names["topic"], 0): 1})
    async with reading(kafka, names["topic"], f"readers-{width}"):
        await only_member(kafka, f"readers-{width}")
        found = await _violations(tab, address, names, width)
    assert not found, "\n".join(found)


async def _violations(tab: Page, address: str, names: dict[str, str], width: int) -> list[str]:
    paths = {page.path for view in VIEWS for page in view.pages} - _OTHERS
    tab.set_default_navigation_timeout(120_000)  # a play takes seconds of a core
    found = []
    for path in sorted(paths):
        query = "".join(text for start, text in QUERIES.items() if path == start or path.startswith(f"{start}/"))
        place = f"{path}{query}".format_map(names | ({"group": f"readers-{width}"} if path in _OF_MEMBERS else {}))
        await tab.emulate_media(color_scheme="light")
        answer = await tab.goto(address + place)
        assert answer is not None
        assert answer.ok or path in _REFUSED, f"{place}: {answer.status}"
        await tab.evaluate(_AXE)
        for scheme, rules in _RULES[width].items():
            await tab.emulate_media(color_scheme=scheme)
            result = await tab.evaluate(f"axe.run(document, {{resultTypes: ['violations']{rules}}})")
            found += [
                f"{scheme} {place}: {each['id']}: {each['help']}: {json.dumps(each['nodes'][0]['html'])[:200]}"
                for each in result["violations"]
            ]
    return found
