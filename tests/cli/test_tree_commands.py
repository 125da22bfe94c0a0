"""`odradek metadata` (M9): the tree of a cluster, read by somebody who is no part of it."""

import asyncio
import json
import signal
import socket
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from odradek.cli import main
from odradek.metadata.store import Store
from odradek.runtime import system_runtime
from odradek.stores import open_store
from odradek.testing import Cluster

BROKER = b'{"version":5,"host":"one","port":9092}'


def odradek(*arguments: str, fails: int = 0) -> Result:
    result = CliRunner().invoke(main, ["metadata", *arguments])
    assert result.exit_code == fails, result.output
    return result


def change(url: str, work: Callable[[Store], Awaitable[Any]]) -> None:
    """Do something with the tree at `url` in a session of its own."""

    async def do() -> None:
        store = open_store(url, system_runtime())
        try:
            await work(store)
        finally:
            await store.close()

    asyncio.run(do())


async def plant(store: Store) -> None:
    for path in ("/brokers", "/brokers/ids", "/empty"):
        await store.create(path)
    await store.create("/brokers/ids/1", BROKER)
    await store.set("/brokers/ids/1", BROKER)
    await store.create("/bytes", b"\xff\x00")
    await store.create("/text", "naïve \x1b[2J".encode())


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    change(f"sqlite:///{tmp_path}/metadata.sqlite", plant)
    return tmp_path


def test_ls_shows_the_nodes_below_one_and_everything_below_it(directory: Path) -> None:
    at = ("--data-dir", str(directory))
    assert odradek("ls", *at).stdout.split() == ["brokers", "bytes", "empty", "text"]
    assert odradek("ls", "/brokers", *at).stdout.split() == ["ids"]
    assert odradek("ls", "/empty", *at).stdout == ""
    every = ["/brokers", "/brokers/ids", "/brokers/ids/1", "/bytes", "/empty", "/text"]
    assert odradek("ls", "-r", *at).stdout.split() == every
    assert odradek("ls", "-r", "/brokers", *at).stdout.split() == every[1:3]
    shown = odradek("ls", "/brokers", "--json", *at).stdout
    assert json.loads(shown) == {"path": "/brokers/ids"}


def test_get_shows_json_in_lines_and_other_data_as_text_or_base64(directory: Path) -> None:
    at = ("--metadata", f"sqlite:///{directory}/metadata.sqlite")
    shown = odradek("get", "/brokers/ids/1", "/empty", "/bytes", "/text", *at).stdout
    assert shown.splitlines() == [
        "/brokers/ids/1  version 1  persistent",
        "{",
        '  "version": 5,',
        '  "host": "one",',
        '  "port": 9092',
        "}",
        "/empty  version 0  persistent",
        "/bytes  version 0  persistent",
        "base64 /wA=",
        "/text  version 0  persistent",
        "base64 bmHDr3ZlIBtbMko=",  # what a terminal would obey
    ]
    nodes = [json.loads(line) for line in odradek("get", "/brokers/ids/1", "/bytes", "--json", *at).stdout.splitlines()]
    created = [node.pop("created") for node in nodes]
    assert created == sorted(created)
    assert nodes == [
        {"path": "/brokers/ids/1", "version": 1, "owner": 0, "data": BROKER.decode()},
        {"path": "/bytes", "version": 0, "owner": 0, "data": None, "data_base64": "/wA="},
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("get", "/nowhere"), "there is no node /nowhere"),
        (("ls", "/nowhere"), "there is no node /nowhere"),
    ],
)
def test_a_missing_node_is_reported_in_one_sentence(directory: Path, arguments, words) -> None:
    said = odradek(*arguments, "--data-dir", str(directory), fails=1).stderr
    assert said.startswith("odradek: ")
    assert words in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("set", "/brokers/ids/1", "x"), "/brokers/ids/1 is written by brokers and consumers themselves"),
        (("delete", "/admin/delete_topics"), "give --force"),
        (("create", "/admin/reassign_partitions", "{"), "brokers could not read this value"),
        (("set", "/config/topics/t", '{"version":1}'), "brokers could not read this value"),
        (("set", "/consumers/g/offsets/t/0", "x"), "is not an integer"),
        (("set", "/config/topics/t", '{"version":1,"config":{}}'), "there is no node /config/topics/t"),
        (("create", "/empty", "--force"), "the node /empty exists"),
    ],
)
def test_a_node_or_value_that_tools_should_not_write_is_refused(directory: Path, arguments, words) -> None:
    at = ("--data-dir", str(directory))
    before = odradek("ls", "-r", *at).stdout + odradek("get", "/brokers/ids/1", *at).stdout
    said = odradek(*arguments, *at, fails=1 if words.startswith("the") else 2).stderr
    assert said.startswith("odradek: ")
    assert words in said
    assert said.count("\n") == 1
    assert odradek("ls", "-r", *at).stdout + odradek("get", "/brokers/ids/1", *at).stdout == before


def test_forced_writes_change_any_node(directory: Path) -> None:
    at = ("--data-dir", str(directory))
    assert odradek("set", "/brokers/ids/1", "naïve", "--force", *at).stdout == "changed /brokers/ids/1\n"
    assert odradek("create", "/brokers/ids/2", "--force", *at).stdout == "created /brokers/ids/2\n"
    assert odradek("delete", "/empty", "--force", *at).stdout == "deleted /empty\n"
    assert "naïve" in odradek("get", "/brokers/ids/1", *at).stdout
    assert odradek("ls", "-r", *at).stdout.split() == [
        "/brokers", "/brokers/ids", "/brokers/ids/1", "/brokers/ids/2", "/bytes", "/text",
    ]  # fmt: skip


def test_writing_creates_no_tree(tmp_path: Path) -> None:
    said = odradek("create", "/x", "--force", "--data-dir", str(tmp_path), fails=1).stderr
    assert "there is no metadata database" in said
    assert list(tmp_path.iterdir()) == []


def test_a_missing_database_is_not_created(tmp_path: Path) -> None:
    said = odradek("ls", "--data-dir", str(tmp_path / "nowhere"), fails=1).stderr
    assert said == f"odradek: there is no metadata database {tmp_path}/nowhere/metadata.sqlite\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("contents", [b"", b"not a database at all, but long enough to look like one" * 100])
def test_a_file_that_is_no_tree_is_refused_and_not_changed(tmp_path: Path, contents) -> None:
    path = tmp_path / "metadata.sqlite"
    path.write_bytes(contents)
    assert f"{path} is not a metadata database" in odradek("ls", "--data-dir", str(tmp_path), fails=1).stderr
    assert path.read_bytes() == contents


def test_a_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "metadata.sqlite"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE things (thing TEXT)")
    other.close()
    before = path.read_bytes()
    assert f"{path} is not a metadata database" in odradek("ls", "--data-dir", str(tmp_path), fails=1).stderr
    assert path.read_bytes() == before


def test_reading_a_tree_needs_no_session_and_writes_nothing(directory: Path) -> None:
    path = directory / "metadata.sqlite"
    before = path.read_bytes()
    odradek("ls", "-r", "--data-dir", str(directory))
    odradek("get", "/empty", "--data-dir", str(directory))
    assert path.read_bytes() == before
    assert list((directory / "metadata.sqlite.sessions").iterdir()) == []


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("memory:", "cannot share a tree in memory"),
        ("sqlite:///", "the metadata URL must be sqlite:///PATH"),
        ("http://localhost", "the metadata URL must be sqlite:///PATH"),
        ("zookeeper://one:two/x", "is not HOST or HOST:PORT"),
    ],
)
def test_an_invalid_tree_url_is_reported_in_one_sentence(url, words) -> None:
    assert words in odradek("ls", "--metadata", url, fails=2).stderr


def test_the_tree_of_a_running_broker_is_shown_with_its_session_as_the_owner(tmp_path: Path) -> None:
    at = ("--data-dir", str(tmp_path))
    with Cluster(data_dir=tmp_path):
        assert "/brokers/ids/0" in odradek("ls", "-r", "/brokers", *at).stdout.split()
        shown = odradek("get", "/controller", *at).stdout
        assert "ephemeral, of session 0x" in shown
        assert '"brokerid": 0' in shown
    assert "there is no node /controller" in odradek("get", "/controller", *at, fails=1).stderr


@pytest.fixture
def watching(directory: Path, lonely_shell: Any) -> Iterator[Callable[..., Any]]:
    """Starts `metadata watch`, and returns when it watches."""

    def start(*arguments: str) -> Any:
        process = lonely_shell.start("metadata", "watch", *arguments, "--data-dir", str(directory))
        line = b""
        while b"watching" not in line:
            line = process.stderr.readline()
            assert line, process.communicate()
        return process

    return start


def test_watch_prints_a_line_per_change_until_control_c(directory: Path, watching, lonely_shell: Any) -> None:
    process = watching("/brokers/ids")
    url = f"sqlite:///{directory}/metadata.sqlite"

    async def come(store: Store) -> None:
        await store.create("/brokers/ids/2", b"{}", ephemeral=True)
        assert await asyncio.to_thread(process.stdout.readline) == (
            f"created  /brokers/ids/2  version 0  ephemeral, of session 0x{store.session_id:x}  {{}}\n".encode()
        )
        await store.set("/brokers/ids/1", b"")
        assert (await asyncio.to_thread(process.stdout.readline)).startswith(b"changed  /brokers/ids/1  version 2")
        await store.create("/elsewhere")

    change(url, come)  # and its session ends
    assert process.stdout.readline() == b"deleted  /brokers/ids/2\n"
    code, rest, errors = lonely_shell.end(process, signal.SIGINT)
    assert (code, rest, errors) == (130, b"", b"")


def test_watch_reports_nodes_below_and_nodes_created_later(directory: Path, watching, lonely_shell: Any) -> None:
    process = watching("/new", "-r", "--json")

    async def grow(store: Store) -> None:
        for path in ("/new", "/new/a", "/new/a/b"):
            await store.create(path, b"1")
            shown = json.loads(await asyncio.to_thread(process.stdout.readline))
            assert (shown["event"], shown["path"], shown["data"]) == ("created", path, "1")
        for path in ("/new/a/b", "/new/a", "/new"):
            await store.delete(path)
            shown = json.loads(await asyncio.to_thread(process.stdout.readline))
            assert shown == {"event": "deleted", "path": path}

    change(f"sqlite:///{directory}/metadata.sqlite", grow)
    assert lonely_shell.end(process, signal.SIGINT)[0] == 130


@pytest.mark.needs("zookeeper")
def test_a_tree_in_zookeeper_is_shown_and_a_missing_chroot_is_not_created(zookeeper) -> None:
    url = f"zookeeper://{zookeeper.address}/shown"
    missing = odradek("ls", "--metadata", url, fails=1).stderr
    assert missing == f"odradek: ZooKeeper at {zookeeper.address} has no node /shown\n"
    assert "shown" not in odradek("ls", "--metadata", f"zookeeper://{zookeeper.address}").stdout.split()
    change(url, plant)
    assert odradek("ls", "--metadata", url).stdout.split() == ["brokers", "bytes", "empty", "text"]
    assert '"host": "one"' in odradek("get", "/brokers/ids/1", "--metadata", url).stdout
    assert "there is no node /nowhere" in odradek("get", "/nowhere", "--metadata", url, fails=1).stderr


def test_a_zookeeper_that_does_not_answer_is_reported_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.stores.opening.READER_CONNECTION_TIMEOUT_MS", 300)
    with socket.socket() as bound:  # refuses, since nobody listens, and nobody else gets it meanwhile
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        said = odradek("ls", "--metadata", f"zookeeper://127.0.0.1:{port}", fails=1).stderr
    assert said == f"odradek: no ZooKeeper server answers at 127.0.0.1:{port}\n"
