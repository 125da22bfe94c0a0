"""`odradek pipeline` as far as it needs no Spark."""

import importlib
import json
import os
import signal
import socket
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from odradek.cli import main
from odradek.model import TopicPartition
from odradek.pipelines import progress
from odradek.pipelines.config.examples import EXAMPLES
from odradek.pipelines.config.parsing import parse_pipeline
from odradek.pipelines.config.pipelines import MirrorPipeline
from odradek.pipelines.mirror import MirrorTopics
from odradek.spark.session import deferred_interrupts


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(main, ["pipeline", *arguments])
    return result.exit_code, result.output


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_example_passes_its_check(kind: str, tmp_path: Path) -> None:
    code, text = run("example", kind)
    assert (code, text) == (0, EXAMPLES[kind])
    file = tmp_path / "job.toml"
    file.write_text(text)
    code, text = run("check", "--no-spark", str(file))
    assert code == 0
    assert text.endswith(f"is a valid {'real_time' if kind == 'table' else kind} pipeline\n")


def test_a_wrong_file_is_an_error_of_one_line_with_status_2(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(EXAMPLES["mirror"].replace("[target]", "[tarket]"))
    code, text = run("run", str(file))
    assert code == 2
    assert text == f"odradek: {file}:11: there is no key tarket: did you mean target?\n"


def test_two_files_with_one_pipeline_name_are_refused(tmp_path: Path) -> None:
    for name in ("a.toml", "b.toml"):
        (tmp_path / name).write_text(EXAMPLES["mirror"])
    code, text = run("check", "--no-spark", str(tmp_path / "a.toml"), str(tmp_path / "b.toml"))
    assert code == 2
    assert "a.toml has the same name, mirror" in text


def test_two_files_share_a_group_only_if_both_are_members_of_it(tmp_path: Path) -> None:
    text = EXAMPLES["offline"].replace('consume_mode = "direct"', 'consume_mode = "group"')
    (tmp_path / "a.toml").write_text(text)
    other = text.replace('name = "archive"', 'name = "more"\ngroup = "archive"').replace("/archive", "/more")
    for mode, status in (("group", 0), ("direct", 2)):
        (tmp_path / "b.toml").write_text(other.replace('consume_mode = "group"', f'consume_mode = "{mode}"'))
        code, printed = run("check", "--no-spark", str(tmp_path))
        assert code == status, printed
    assert "a.toml has the same group, archive" in printed


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_the_command_is_imported_ends_it_with_one_line(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib, "import_module", lambda name: os.kill(os.getpid(), number))
    before = signal.getsignal(number)
    assert run("run", "any.toml") == (130, "odradek: pipeline: stopped before it began\n")
    assert signal.getsignal(number) is before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_spark_starts_stops_the_pipelines(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*names: str, **more: Any) -> None:
        os.kill(os.getpid(), number)

    monkeypatch.setattr("odradek.spark.session.local_session", start)
    before = signal.getsignal(number)
    for kind in EXAMPLES:
        (tmp_path / f"{kind}.toml").write_text(EXAMPLES[kind])
    code, text = run("run", str(tmp_path))
    assert code == 130
    assert text == "".join(
        f"{name}: 0 records in, 0 out, 0 batches, 0.0 s, stopped\n"
        for name in ("mirror", "archive", "delays", "orders")
    )
    code, text = run("run", "--json", str(tmp_path / "mirror.toml"))
    assert (code, json.loads(text)["state"]) == (130, "stopped")
    assert signal.getsignal(number) is before


# ---- Interrupts ------------------------------------------------------------------------------------------------------

MIRROR = """
kind = "mirror"
checkpoint = "mirror.state"
[source]
bootstrap_servers = "{address}"
topics = ["a"]
[target]
bootstrap_servers = "{address}"
topic_prefix = "copy."
"""


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """A listener that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def address(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def test_ctrl_c_ends_the_wait_for_the_topics_of_a_mirror(silent: socket.socket, tmp_path: Path) -> None:
    values = tomllib.loads(MIRROR.format(address=address(silent)))
    pipeline = parse_pipeline(values, directory=tmp_path, default_name="job")
    assert isinstance(pipeline, MirrorPipeline)
    accepted = []

    def interrupt() -> None:
        accepted.append(silent.accept()[0])
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    topics = MirrorTopics(pipeline)
    try:
        with deferred_interrupts(), pytest.raises(KeyboardInterrupt):
            topics.ensure()
    finally:
        topics.close()
        thread.join()
        for connection in accepted:
            connection.close()


def test_a_commit_to_a_cluster_that_does_not_answer_ends_soon_and_is_logged(
    silent: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    assert progress._COMMIT_SECONDS <= 5
    monkeypatch.setattr(progress, "_COMMIT_SECONDS", 0.01)
    group = progress.GroupProgress(address(silent), {}, "job")
    for offset in (1, 2):
        group.commit({TopicPartition("a", 0): offset})
    group.close()
    expected = f"Failed to commit the progress to group job, will retry: no answer from {address(silent)} within 0.01 s"
    assert [line for line in caplog.messages if line.startswith("Failed")] == [expected, expected]
