"""Refused starts of `serve` and `up`, and clients of a tree that is not there: each leaves every folder as it was."""

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.broker.lifecycle import Broker
from odradek.cli import main, serve, up
from odradek.cli.page_listener import PageListener
from odradek.clients import ZookeeperConsumer
from odradek.config.load import load
from odradek.config.zookeeper import ZookeeperKeys
from odradek.metadata.new_topic import NewTopic
from odradek.model import OdradekError, StorageError, parse_host_port
from odradek.runtime import system_runtime
from odradek.stores import open_store
from odradek.testing.servers.ports import HeldPort, free_ports
from tests.world.scenes import awaited

Start = Callable[[], Coroutine[Any, Any, None]]


def listing(folder: Path) -> dict[str, int]:
    """Every file with its size; the files of a running tree change theirs."""
    names = {str(each.relative_to(folder)): each for each in folder.rglob("*")}
    return {name: 0 if "sqlite" in name or each.is_dir() else each.stat().st_size for name, each in names.items()}


@asynccontextmanager
async def running(data_dir: Path, *, broker_id: int = 0, tree: Path | None = None) -> AsyncIterator[Broker]:
    """A broker of `serve`, in this process."""
    runtime = system_runtime()
    directory = tree or data_dir
    store = open_store(f"sqlite:///{directory}/metadata.sqlite", runtime)
    config = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(data_dir), "broker.id": str(broker_id)}
    broker = Broker(load(None, config), runtime, store, note="odradek serve")
    try:
        await broker.start()
        yield broker
        await broker.stop()
    finally:
        await store.close()


async def serves(data_dir: Path, *topics: str, broker_id: int = 0, tree: Path | None = None) -> None:
    async with running(data_dir, broker_id=broker_id, tree=tree) as broker:
        await broker.create_topics([NewTopic(name=name, num_partitions=1, replication_factor=1) for name in topics])


async def start(
    data_dir: Path | str,
    *,
    listen: str = "127.0.0.1:0",
    tree: str | None = None,
    broker_id: int = 0,
    metrics: str | None = None,
    page: str | None = None,
    **keys: str,
) -> None:
    """Start `odradek serve`, which is refused."""
    own = {"listeners": f"PLAINTEXT://{listen}", "log.dirs": str(data_dir), "broker.id": str(broker_id)}
    config = load(None, own | {key.replace("_", "."): value for key, value in keys.items()})
    beside = None if page is None else (page, PageListener(name="PLAINTEXT", client={}, requires_login=False))
    measured = None if metrics is None else parse_host_port(metrics)
    url = f"sqlite:///{tree or f'{data_dir}/metadata.sqlite'}"
    await serve._serve(config, url, measured, beside, 100, stop_with_stdin=False)


@contextmanager
def taken() -> Iterator[str]:
    """Listen on an address; the port before it is free, and no other process gets it meanwhile."""
    for port in free_ports(50):
        try:
            before, listening = HeldPort(port - 1), socket.create_server(("127.0.0.1", port))
        except OSError:
            continue
        with listening:
            yield f"127.0.0.1:{port}"
        before.release()
        return


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Make `one` as `serve` does, `several` as `up` does, `other` of another cluster, and `five` of broker 5."""
    several = tmp_path / "several"
    several.mkdir()

    async def make() -> None:
        await serves(tmp_path / "one", "greetings")
        await serves(several / "broker-0", "greetings", tree=several)
        await serves(several / "broker-1", broker_id=1, tree=several)
        await serves(tmp_path / "other")
        await serves(tmp_path / "five", broker_id=5)

    asyncio.run(make())
    (tmp_path / "text").write_text("no tree")
    return tmp_path


def refused_serves(place: Path, address: str) -> dict[str, tuple[Start, str]]:
    """Return each start and words of its refusal."""
    new, one, several = place / "new", place / "one", place / "several"
    return {
        "directory of up": (partial(start, several), "run `odradek up` with it"),
        "directory of up, another id": (partial(start, several, broker_id=7), "run `odradek up` with it"),
        "another broker's": (partial(start, place / "five"), "belongs to broker 5"),
        "own data elsewhere": (partial(start, new, tree=f"{one}/metadata.sqlite"), f"with --data-dir {one}"),
        "a broker of up elsewhere": (
            partial(start, new, tree=f"{several}/metadata.sqlite"), f"with --data-dir {several}/broker-0",
        ),
        "another cluster's": (partial(start, place / "other", tree=f"{one}/metadata.sqlite"), "is of cluster"),
        "no tree": (partial(start, one, tree=f"{place}/mistyped/metadata.sqlite"), "there is no metadata database"),
        "no database": (partial(start, new, tree=f"{place}/text"), "is not a metadata database"),
        "port": (partial(start, new, listen=address), "another process has that port"),
        "address": (partial(start, new, listen="192.0.2.1:0"), "192.0.2.1 is not an address of this machine"),
        "metrics": (partial(start, new, metrics=address), "for metrics: another process has that port"),
        "page": (partial(start, new, page=address), "for the page: another process has that port"),
        "page address": (partial(start, new, page="192.0.2.1:0"), "192.0.2.1 is not an address of this machine"),
        "keystore": (
            partial(start, new, listener_security_protocol_map="PLAINTEXT:SSL", ssl_keystore_location="/no.pem"), "/no",
        ),
        "a file": (partial(start, place / "text"), "not a directory"),
    }  # fmt: skip


@awaited
async def test_a_refused_serve_leaves_every_folder_as_it_was(place: Path) -> None:
    before = listing(place)
    with taken() as address:
        for name, (started, words) in refused_serves(place, address).items():
            with pytest.raises(OdradekError) as refusal:
                await started()
            assert words in str(refusal.value), name
            assert "forget-directory" not in str(refusal.value), name
            assert listing(place) == before, name


def test_a_tree_of_another_cluster_is_refused_before_a_session_or_a_port(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_store(*_: object, **__: object) -> None:
        raise AssertionError("a session begins")

    monkeypatch.setattr(serve, "open_store", no_store)
    with pytest.raises(StorageError, match="use the --metadata of its own cluster, or another --data-dir"):
        asyncio.run(start(place / "other", tree=f"{place}/one/metadata.sqlite"))


@awaited
async def test_a_serve_beside_a_running_broker_leaves_every_folder_as_it_was(place: Path) -> None:
    one, tree = place / "one", f"{place}/one/metadata.sqlite"
    async with running(one):
        await asyncio.to_thread(shutil.rmtree, place / "other")
        before = listing(place)
        for started, words in (
            (partial(start, one), f"the data directory {one} is in use by process"),
            (partial(start, one, broker_id=1), "is in use by process"),
            (partial(start, place / "new", tree=tree), "the broker id 0 is taken by the broker at 127.0.0.1:"),
        ):
            with pytest.raises(OdradekError, match=words):
                await started()
            assert listing(place) == before
        with pytest.raises(OdradekError, match="made by `odradek serve`"):
            await up._check(3, one, 0, None, f"sqlite:///{tree}", ZookeeperKeys())
        assert listing(place) == before
    async with running(place / "several" / "broker-0", tree=place / "several"):
        before = listing(place)
        with pytest.raises(StorageError, match="broker-0 is in use by process"):
            await up._check(
                3, place / "several", 0, None, f"sqlite:///{place}/several/metadata.sqlite", ZookeeperKeys()
            )
        with pytest.raises(StorageError, match="run `odradek up` with it"):
            await start(place / "several")
        assert listing(place) == before


def refused_ups(place: Path, address: str) -> dict[str, tuple[list[str], str]]:
    new, one, several = f"{place}/new", f"{place}/one", f"{place}/several"
    port = address.rpartition(":")[2]
    return {
        "directory of serve": (["--data-dir", one], f"odradek up --brokers 3 --data-dir {one}-up"),
        "port": (["--data-dir", new, "--port", port], "another process has that port"),
        "second port": (["--data-dir", new, "--port", str(int(port) - 1)], f"can't listen on {address}"),
        "page": (["--data-dir", new, "--port", "0", "--page", address], "for the page: another process has that port"),
        "serve's tree": (["--data-dir", new, "--port", "0", "--metadata", f"sqlite:///{one}/metadata.sqlite"], one),
        "another's tree": (
            ["--data-dir", several, "--port", "0", "--metadata", f"sqlite:///{one}/metadata.sqlite"], "is of cluster",
        ),
        "no tree": (
            ["--data-dir", several, "--port", "0", "--metadata", f"sqlite:///{place}/mistyped.sqlite"], "there is no",
        ),
        "key": (["--data-dir", new, "--secure", f"{place}/security", "-o", "no.such.key=1"], "no.such.key"),
        "secured port": (["--data-dir", new, "--secure", f"{place}/security", "--port", port], "has that port"),
        "a file": (["--data-dir", f"{place}/text", "--port", "0"], "is a file"),
    }  # fmt: skip


def test_a_refused_up_leaves_every_folder_as_it_was(place: Path) -> None:
    shutil.copytree(place / "five", place / "mixed" / "broker-1")
    before = listing(place)
    with taken() as address:
        refusals = refused_ups(place, address) | {
            "another broker's": (["--data-dir", f"{place}/mixed", "--port", "0"], "belongs to broker 5")
        }
        for name, (arguments, words) in refusals.items():
            done = CliRunner().invoke(main, ["up", "--brokers", "3", *arguments])
            assert done.exit_code in {1, 2}, (name, done.output)
            assert words in done.stderr, (name, done.stderr)
            assert "forget-directory" not in done.stderr, name
            assert listing(place) == before, name


def test_a_client_or_command_with_a_mistyped_address_makes_no_tree(tmp_path: Path) -> None:
    tree = ["--metadata", f"sqlite:///{tmp_path}/mistyped/metadata.sqlite"]
    for command in (
        ["metadata", "ls"],
        ["metadata", "get", "/x"],
        ["metadata", "watch", "/x"],
        ["metadata", "create", "/config/topics/t", "x", "--force"],
        ["metadata", "set", "/config/topics/t", "x", "--force"],
        ["metadata", "delete", "/config/topics/t", "--force"],
        ["metadata", "forget-directory", "--broker-id", "0", "x"],
        ["metadata", "accept-loss", "--broker-id", "0", "t-0"],
        ["groups", "tree"],
        ["groups", "migrate", "g"],
    ):
        done = CliRunner().invoke(main, [*command, *tree])
        assert done.exit_code != 0, command
        assert not listing(tmp_path), command
    consumer = ZookeeperConsumer(f"sqlite:///{tmp_path}/mistyped/metadata.sqlite", group_id="g")
    with pytest.raises(StorageError, match="there is no metadata database"):
        asyncio.run(consumer.start())
    assert not listing(tmp_path)


@awaited
async def test_a_folder_with_meta_properties_is_never_a_log(tmp_path: Path) -> None:
    await serves(tmp_path)
    shutil.copytree(tmp_path, tmp_path.parent / "nested-1")
    nested = Path(shutil.move(tmp_path.parent / "nested-1", tmp_path / "nested-1"))
    before = listing(nested)
    async with running(tmp_path) as broker:
        assert list(broker.logs) == []
        await broker.create_topics([NewTopic(name="nested", num_partitions=2, replication_factor=1)])
        assert [str(each) for each in broker.logs] == ["nested-0"]
    assert listing(nested) == before


def test_a_directory_that_is_only_left_out_of_log_dirs_is_not_given_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is missing: the advice is to add the directory, not to forget it."""

    first, second = tmp_path / "first", tmp_path / "second"

    async def start_on(log_dirs: str, *topics: str) -> None:
        runtime = system_runtime()
        store = open_store(f"sqlite:///{tmp_path}/metadata.sqlite", runtime)
        broker = Broker(load(None, {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": log_dirs}), runtime, store)
        await broker.start()
        await broker.create_topics([NewTopic(name=name, num_partitions=2, replication_factor=1) for name in topics])
        await broker.stop()
        await store.close()

    asyncio.run(start_on(f"{first},{second}", "t"))
    asyncio.run(start_on(str(second)))
    assert f"add {first} to log.dirs (--data-dir), and restart this broker" in caplog.text
    assert "forget-directory" not in caplog.text
