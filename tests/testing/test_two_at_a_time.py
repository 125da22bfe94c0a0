"""How `make test` deals out tests to its processes: what shares a file or a heavy server stays together."""

from types import SimpleNamespace
from typing import Any

import pytest
from xdist.workermanage import parse_tx_spec_config

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
