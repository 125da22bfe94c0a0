"""A plugin (`make test-alone`): tests that share a fixture, each alone, and any two of a module in both orders.

A fixture of a module or of the session passes between tests what one of them has left in it: a test may pass only
after another, or fail only after one that usually comes later. Each test is run with new fixtures, then all of the
module are run in order and backwards, with new fixtures for each run.
"""

from collections.abc import Iterator
from itertools import groupby
from typing import Any

import pytest


def _shares(item: Any) -> bool:
    """Return whether the test uses a fixture that other tests use, too, but those of every test."""
    found = (each for defs in item._fixtureinfo.name2fixturedefs.values() for each in defs)
    return any(each.scope != "function" and each.baseid not in ("", "tests") for each in found)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept = [item for item in items if _shares(item)]
    config.hook.pytest_deselected(items=[item for item in items if not _shares(item)])
    items[:] = kept


def _orders(items: list[pytest.Item]) -> Iterator[list[pytest.Item]]:
    for _, found in groupby(items, key=lambda item: item.path):
        tests = list(found)
        yield from ([each] for each in tests)
        if len(tests) > 1:
            yield from (tests, tests[::-1])


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if session.config.option.collectonly or session.testsfailed:
        return None
    for order in _orders(session.items):
        for item, following in zip(order, [*order[1:], None], strict=True):
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            if session.shouldfail or session.shouldstop:
                raise session.Interrupted(session.shouldfail or session.shouldstop)
    return True
