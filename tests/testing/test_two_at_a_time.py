"""How `make test` deals out tests to its processes: what shares a file or a heavy server stays together."""

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from xdist.workermanage import parse_tx_spec_config

from odradek.testing import eventually
from tests.docs.fenced_blocks import examples

SPARK = ["tests/spark/test_a.py::test_1", "tests/pipelines/test_b.py::test_2", "tests/spark/test_c.py::test_3"]
KAFKA = ["conformance/peers/test_d.py::test_4", "conformance/peers/test_e.py::test_5"]
FILE = [f"tests/broker/log/test_f.py::test_of_a_file[a::b-{number}]" for number in range(4)]
OTHER = ["tests/broker/log/test_g.py::TestModel::runTest"]


class Worker:
    """A worker's process, as far as the scheduler uses it."""

    shutting_down = False

    def __init__(self) -> None:
        self.gateway = SimpleNamespace(id=f"{id(self)}")
        self.numbers: list[int] = []

    def send_runtest_some(self, numbers: list[int]) -> None:
        self.numbers += numbers

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduler(request: pytest.FixtureRequest, dist: str) -> Any:
    """As xdist makes it at the start of a run with two workers."""
    values = {"dist": dist, "tx": ["2*popen"]}
    option = SimpleNamespace(loadscopereorder=True)
    config = SimpleNamespace(option=option, getvalue=values.__getitem__, getoption=values.__getitem__)
    assert len(parse_tx_spec_config(config)) == 2
    conftest = request.config.pluginmanager.get_plugin(str(request.config.rootpath / "conftest.py"))
    return conftest.pytest_xdist_make_scheduler(config, None)


def test_tests_of_a_file_or_of_a_heavy_server_are_run_by_one_worker_in_the_order_of_collection(
    request: pytest.FixtureRequest,
) -> None:
    dealt = scheduler(request, "loadgroup")
    tests = [*SPARK, *FILE, *KAFKA, *OTHER]
    workers = [Worker(), Worker()]
    for worker in workers:
        dealt.add_node(worker)
        dealt.add_node_collection(worker, tests)
    dealt.schedule()
    assert [[tests[number] for number in worker.numbers] for worker in workers] == [SPARK, FILE]
    for number in workers[1].numbers[:2]:
        dealt.mark_test_complete(workers[1], number)
    assert [tests[number] for number in workers[1].numbers] == [*FILE, *KAFKA]


def test_another_way_of_dealing_them_out_is_xdists_own(request: pytest.FixtureRequest) -> None:
    assert scheduler(request, "load") is None


def test_the_longest_rooms_come_first_in_an_order_that_is_shuffled_otherwise(request: pytest.FixtureRequest) -> None:
    conftest = request.config.pluginmanager.get_plugin(str(request.config.rootpath / "conftest.py"))
    items = [SimpleNamespace(nodeid=nodeid) for nodeid in (*OTHER, "tests/model/test_h.py::test", *FILE, *SPARK)]
    conftest.pytest_collection_modifyitems(items)
    names = [item.nodeid for item in items]
    assert names[0:2] == [SPARK[0], SPARK[2]]
    assert names[2] == SPARK[1]
    assert names[3:] == [*OTHER, *FILE, "tests/model/test_h.py::test"]


# ---- The plugin ------------------------------------------------------------------------------------------------------


def test_the_plugin_imports_no_broker_until_a_test_uses_the_fixture():
    program = (
        "import sys; before = set(sys.modules); import odradek.testing.pytest_plugin;"
        "print(*(name for name in set(sys.modules) - before if name.partition('.')[0] in ('kio', 'uvloop', 'numpy')"
        " or name.startswith(('odradek.broker', 'odradek.clients', 'odradek.protocol'))))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == ""


# ---- docs/testing.md -------------------------------------------------------------------------------------------------

PAGE: Final = (Path(__file__).parents[2] / "docs" / "testing.md").read_text()


EXAMPLES: Final = [example.text for example in examples("testing.md", "python") if example.is_run]


def test_every_client_that_the_page_names_has_an_example():
    for client in ("confluent_kafka", "kafka", "aiokafka"):
        assert any(re.search(rf"^from {client} import", example, re.MULTILINE) for example in EXAMPLES), client


def test_every_call_of_the_cluster_is_on_the_page():
    from odradek.testing import Cluster

    calls = [name for name in vars(Cluster) if not name.startswith("_") and name not in ("start", "stop")]
    assert len(calls) >= 15
    assert [name for name in calls if f"`{name}" not in PAGE and f", `{name}" not in PAGE] == []


# ---- Interrupted runs ------------------------------------------------------------------------------------------------

ROOT: Final = Path(__file__).parents[2]


DEADLINE_S: Final = 120.0


TESTS: Final = """
import os, signal
from pathlib import Path
import pytest
from odradek.testing.servers.odradek_process import ServedBroker

@pytest.mark.parametrize("number", [0, 1])
def test_that_never_ends(number, tmp_path):
    with ServedBroker(tmp_path / "data") as broker:
        written = Path(f"started-{number}")
        written.with_suffix(".new").write_text(str(broker.pid))
        written.with_suffix(".new").rename(written)
        signal.pause()
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and pidfd")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
@pytest.mark.parametrize("workers", [0, 2])
def test_brokers_end_with_the_run_that_has_started_them(tmp_path: Path, number: signal.Signals, workers: int):
    (tmp_path / "test_that_never_ends.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-c", str(ROOT / "pyproject.toml")]
    arguments = [
        "--rootdir",
        str(tmp_path),
        "--numprocesses",
        str(workers),
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        str(tmp_path),
    ]
    run = subprocess.Popen(
        [*command, *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    brokers: list[int] = []
    try:
        expected = [tmp_path / f"started-{each}" for each in range(max(workers, 1))]
        assert eventually(lambda: all(each.exists() for each in expected), within_s=DEADLINE_S)
        brokers = [os.pidfd_open(int(each.read_text())) for each in expected]
        run.send_signal(number)  # to this process, not to its group
        run.wait(DEADLINE_S)
        for broker in brokers:
            assert select.select([broker], [], [], DEADLINE_S)[0], "a broker still runs"
    finally:
        run.kill()
        run.wait()
        for broker in brokers:
            os.close(broker)
