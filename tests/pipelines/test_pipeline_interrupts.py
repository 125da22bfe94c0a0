"""A cluster that does not answer: Ctrl-C ends the wait for it, and a commit of progress has a short one."""

import os
import signal
import socket
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.model import TopicPartition
from odradek.pipelines import progress
from odradek.pipelines.config import MirrorPipeline, parse_pipeline
from odradek.pipelines.mirror import MirrorTopics
from odradek.spark.session import deferred_interrupts

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
