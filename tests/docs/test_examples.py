"""Every example of README.md and docs runs as a reader runs it, page by page, with a broker of the page's own.

The tests of Spark run the blocks that need it (`tests/spark`, `tests/pipelines`), `tests/lab` those that take minutes.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Final

import pytest

from odradek.clients.admin import NewTopic
from odradek.clients.blocking import Admin, Consumer, Producer
from odradek.testing.servers.odradek_process import ServedBroker
from tests.docs.fenced_blocks import (
    COMPARED_ELSEWHERE,
    ENDLESS,
    LANGUAGES,
    NOT_RUN,
    PAGES,
    PRINTS,
    ROOT,
    Example,
    check_printed,
    examples,
    run_python,
    run_shell,
    shell_steps,
)
from tests.lab.test_lab_live import living_group

pytestmark = pytest.mark.long

FILES: Final = frozenset({"toml", "json"})
OPTIONS: Final = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}


@contextmanager
def idle_group(servers: str) -> Iterator[None]:
    """A group that has read two partitions and has no members now."""
    with Admin(servers) as admin, Producer(servers) as producer:
        admin.create_topics([NewTopic(name="flights", partitions=2)])
        producer.send("flights", b"{}", partition=0).result()
    with Consumer("flights", bootstrap_servers=servers, group_id="readers", auto_offset_reset="earliest") as consumer:
        consumer.poll()
    yield


PREPARED: Final[dict[str, Callable[[str], AbstractContextManager[None]]]] = {
    "groups.md": idle_group,
    "zookeeper-consumer.md": idle_group,
    "lab.md": lambda servers: living_group(servers, "readers", topic="flights"),
}
"""A page's commands find these groups in the cluster."""


RUN_ELSEWHERE: Final = {"metadata-tree.md": "conformance/interop/test_metadata_tree_page.py"}
"""Pages whose examples need a cluster of their own → the test that runs them."""
HERE: Final = [page for page in PAGES if page.name not in RUN_ELSEWHERE]


@pytest.mark.parametrize("page", HERE, ids=[page.name for page in HERE])
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = [example for example in examples(page) if example.is_run]
    for example in run:
        if example.language in FILES and example.title:
            (tmp_path / example.title).write_text(example.text)
    live = [each for each in run if each.language in ("python", "sh", "console") or each.title == PRINTS]
    live = [each for each in live if not each.is_test and not each.needs_spark]
    if not live:
        return
    with ServedBroker(tmp_path / "odradek-data", options=OPTIONS) as broker:
        servers = broker.bootstrap_servers
        with PREPARED.get(page.name, lambda _: nullcontext())(servers):
            printed = ""
            for example in live:
                if example.title == PRINTS:
                    check_printed(example, printed)
                elif example.language == "python":
                    printed = run_python(example, servers)
                else:
                    run_shell(example, servers)


def test_the_examples_that_are_tests_pass(tmp_path: Path) -> None:
    """With the fixtures that the package brings."""
    tests = [each for page in PAGES for each in examples(page) if each.is_test and each.is_run and not each.needs_spark]
    for number, example in enumerate(tests):
        (tmp_path / f"test_example_{number}.py").write_text(example.text)
    arguments = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_default_fixture_loop_scope=function"]
    done = subprocess.run(
        [sys.executable, *arguments, str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    written = sum(example.text.count("\ndef test_") + example.text.count("\nasync def test_") for example in tests)
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= written  # an example may have parameters
    assert written >= 8


def test_every_block_has_a_known_language_and_few_are_not_run() -> None:
    found: list[Example] = [example for page in PAGES for example in examples(page)]
    assert [str(each) for each in found if each.language not in LANGUAGES] == []
    reasons = [each.title.removeprefix(NOT_RUN) for each in found if not each.is_run]
    assert all((ROOT / test).is_file() for test in RUN_ELSEWHERE.values())
    assert all(len(reason) > 10 for reason in reasons)
    assert len(reasons) <= len(found) / 8


def test_all_that_a_page_says_a_command_prints_is_compared() -> None:
    steps = [(each, step) for page in PAGES for each in examples(page, "console") for step in shell_steps(each)]
    endless = {each.page.name for each, (command, output) in steps if each.is_run and output and ENDLESS.match(command)}
    assert endless == COMPARED_ELSEWHERE.keys()
    assert all((ROOT / test).is_file() for test in COMPARED_ELSEWHERE.values())
