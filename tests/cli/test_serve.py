"""`odradek serve` as a process: the ready line, signals, ports that stay, and refusals in one sentence."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from odradek.testing.conditions import eventually

DEADLINE_S = 30
PROGRAM = [sys.executable, "-c", "from odradek.cli import main; main()", "serve"]


@contextmanager
def serving(*arguments: str) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """The process, and what it was ready at."""
    process = subprocess.Popen(
        [*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        match = re.fullmatch(r"ready: (\S+:\d+)\n", line)
        assert match is not None, process.communicate(timeout=DEADLINE_S)
        yield process, match[1]
    finally:
        process.kill()
        process.communicate(timeout=DEADLINE_S)


def refused(*arguments: str) -> str:
    """Return the one line that a process prints which does not start, after its usage for a value of a wrong form."""
    done = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode in {1, 2}, done
    assert done.stdout == ""
    (line,) = [line for line in done.stderr.splitlines() if line.startswith(("odradek: ", "Error: "))]
    assert "Traceback" not in done.stderr
    return line


def test_other_users_may_not_read_what_a_server_stores(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with serving("--listen", "127.0.0.1:0", "--data-dir", str(folder)):
        stored = [folder, *folder.rglob("*")]
        assert folder / "metadata.sqlite" in stored
        assert not [each for each in stored if each.stat().st_mode & 0o077]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_is_ready_and_stops_cleanly_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    with serving("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)) as (process, address):
        host, port = address.split(":")
        with socket.create_connection((host, int(port)), timeout=DEADLINE_S):
            process.send_signal(number)
            rest, log = process.communicate(timeout=DEADLINE_S)
        assert (process.returncode, rest) == (0, "")
        assert "ERROR" not in log
        assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_broker_whose_standard_files_are_closed_serves_and_keeps_its_own_files_beyond_them(tmp_path: Path) -> None:
    command = [*PROGRAM, "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    process = subprocess.Popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command])
    try:
        eventually(lambda: (tmp_path / "listener.ports").exists() or process.poll() is not None)
        numbers = {number: os.readlink(f"/proc/{process.pid}/fd/{number}") for number in range(3)}
        assert numbers == dict.fromkeys(range(3), os.devnull)
    finally:
        process.terminate()
        assert process.wait(timeout=DEADLINE_S) == 0


def test_a_free_port_is_kept_by_a_restart(tmp_path: Path) -> None:
    arguments = ("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))
    with serving(*arguments) as (_, first):
        pass
    with serving(*arguments) as (_, second):
        assert second == first
        taken = socket.create_server(("127.0.0.1", 0))
    with taken:
        (tmp_path / "listener.ports").write_text(f"PLAINTEXT={taken.getsockname()[1]}\n")
        with serving(*arguments) as (_, third):
            assert int(third.split(":")[1]) != taken.getsockname()[1]


@pytest.mark.parametrize("port", ["99999", "-1", "9" * 5000])
def test_an_invalid_remembered_port_is_not_used(tmp_path: Path, port: str) -> None:
    (tmp_path / "listener.ports").write_text(f"PLAINTEXT={port}\n")
    with serving("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)) as (_, address):
        assert address != "127.0.0.1:34463"  # the last sixteen bits of 99999


def test_a_data_directory_in_use_is_refused_naming_the_process(tmp_path: Path) -> None:
    arguments = ("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))
    with serving(*arguments) as (process, _):
        line = refused(*arguments)
    assert f"process {process.pid}" in line
    assert str(tmp_path) in line


def test_a_port_in_use_is_refused_in_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        line = refused("--listen", address, "--data-dir", str(tmp_path))
    assert address in line
    assert "another process has that port" in line


def test_a_listener_beyond_the_machine_needs_an_explicit_option(tmp_path: Path) -> None:
    arguments = ("--listen", "0.0.0.0:0", "--data-dir", str(tmp_path))
    assert "--allow-anonymous-network" in refused(*arguments)
    with serving(*arguments, "--allow-anonymous-network", "--advertise", "127.0.0.1:1") as (_, address):
        assert address == "127.0.0.1:1"


def test_flags_beat_options_which_beat_the_environment_which_beats_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://127.0.0.1:1\nbroker.id=5\nlog.dirs=/nowhere\nnum.partitions=2\n")
    arguments = ["--config", str(file), "-o", "listeners=PLAINTEXT://127.0.0.1:0", "-o", "broker.id=6"]
    monkeypatch.setenv("KAFKA_LISTENERS", "PLAINTEXT://127.0.0.1:1")
    monkeypatch.setenv("KAFKA_LOG_DIRS", str(tmp_path / "data"))
    with serving(*arguments, "--broker-id", "7") as (process, _):
        assert "node.id=7" in (tmp_path / "data" / "meta.properties").read_text()
        process.terminate()
        log = process.communicate(timeout=DEADLINE_S)[1]
    assert "-o broker.id=6 has no effect, because a flag sets 7" in log
    assert "-o listeners" not in log


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-o", "no.such.key=1"], "no.such.key"),
        (["-o", "nonsense"], "KEY=VALUE"),
        (["--listen", "nonsense"], "HOST:PORT"),
        (["--config", "/no/such/file"], "/no/such/file"),
        (["--metadata", "postgres://x"], "postgres://x"),
        (["--data-dir", "/proc/nothing/here"], "/proc/nothing/here"),
        (["--advertise", "0.0.0.0:9092"], "name this machine as clients know it"),
        (["--config", "/dev/null", "-o", "advertised.listeners=OTHER://localhost:1"], "OTHER"),
    ],
)
def test_invalid_arguments_are_explained_in_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    assert words in refused("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), *arguments)


def test_metadata_of_another_cluster_is_refused(tmp_path: Path) -> None:
    with serving("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)):
        pass
    line = refused("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--metadata", "memory:")
    assert "cluster" in line


def test_a_broker_id_that_is_taken_is_refused_naming_its_broker(tmp_path: Path) -> None:
    tree = ("--metadata", f"sqlite:///{tmp_path}/metadata.sqlite", "--listen", "127.0.0.1:0", "--broker-id", "7")
    with serving(*tree, "--data-dir", str(tmp_path / "one")) as (_, address):
        line = refused(*tree, "--data-dir", str(tmp_path / "two"))
    assert line == f"odradek: the broker id 7 is taken by the broker at {address}"


def test_a_server_does_not_import_what_only_others_need(tmp_path: Path) -> None:
    with serving("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)) as (process, _):
        mapped = Path(f"/proc/{process.pid}/maps")
        if not mapped.exists():
            pytest.skip("needs /proc")
        libraries = {os.path.basename(line.split()[-1]) for line in mapped.read_text().splitlines()}
    assert not [name for name in libraries if re.search("numpy|arrow|pandas", name)]


def test_a_listener_that_promises_protection_is_refused(tmp_path: Path) -> None:
    line = refused("-o", "listeners=SASL_SSL://127.0.0.1:0", "--data-dir", str(tmp_path))
    assert "SASL_SSL" in line


def test_every_listener_has_its_own_addresses(tmp_path: Path) -> None:
    listeners = "listeners=PLAINTEXT://127.0.0.1:0,INSIDE://localhost:0"
    protocols = "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT"
    with serving("-o", listeners, "-o", protocols, "--data-dir", str(tmp_path)) as (_, address):
        ports = dict(line.split("=") for line in (tmp_path / "listener.ports").read_text().splitlines())
        assert address == f"127.0.0.1:{ports['PLAINTEXT']}"
        for port in ports.values():
            with socket.create_connection(("127.0.0.1", int(port)), timeout=DEADLINE_S):
                pass
    assert set(ports) == {"PLAINTEXT", "INSIDE"}


def answer_of(port: int, path: str) -> str:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEADLINE_S)
    with closing(connection):
        connection.request("GET", path)
        answer = connection.getresponse()
        assert answer.status == 200
        return answer.read().decode()


def test_a_server_serves_metrics_and_logs_json_if_configured(tmp_path: Path) -> None:
    metrics = ("--metrics-listen", "127.0.0.1:0", "--log-format", "json")
    with serving("--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), *metrics) as (process, address):
        assert process.stderr is not None
        entry = json.loads(process.stderr.readline())
        port = re.fullmatch(r"metrics at http://127.0.0.1:(\d+)/metrics", entry["message"])
        assert port is not None
        page = answer_of(int(port[1]), "/metrics")
        assert answer_of(int(port[1]), "/readyz") == "ready\n"
        assert "kafka_server_kafkaserver_brokerstate 3.0" in page
        assert "process_resident_memory_bytes" in page
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=DEADLINE_S)
    entries = [json.loads(line) for line in log.splitlines()]
    assert entries[-1]["message"] == "broker 0 has stopped"
    assert address


def test_the_serve_command_imports_no_metrics_server(tmp_path: Path) -> None:
    code = (
        "import sys; from odradek.cli.serve import command\n"
        "heavy = 'prometheus', 'odradek.broker.observing.'\n"
        "print(sorted(name for name in sys.modules if name.startswith(heavy)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert shown.stdout.strip() == "[]"


def test_metrics_beyond_this_machine_must_be_meant_as_listeners_must(tmp_path: Path) -> None:
    line = refused("--data-dir", str(tmp_path), "--metrics-listen", "0.0.0.0:0")
    assert "--allow-anonymous-network" in line


def test_a_start_that_fails_is_an_entry_of_the_log_in_json(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "--data-dir", str(tmp_path), "-o", "nope=1", "--log-format", "json"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert json.loads(line)["level"] == "CRITICAL"
    assert "nope" in json.loads(line)["message"]


def test_a_start_imports_nothing_that_only_some_brokers_need() -> None:
    """Each of these is a tenth of a second and ten megabytes, or a megabyte at least."""
    code = "import odradek.cli.serve, sys; print(*(name for name, found in sys.modules.items() if found))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    assert "odradek.broker.lifecycle" in done.stdout.split()
    assert not {"numpy", "pyarrow", "kazoo", "hypothesis", "cramjam", "importlib.metadata"} & set(done.stdout.split())
