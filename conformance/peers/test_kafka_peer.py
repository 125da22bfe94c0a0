"""Apache Kafka as a peer: where there is none, one sentence says why; a node that cannot start says why."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers.kafka_peer import KafkaBroker, kafka_home
from odradek.model import UnavailableError
from odradek.spark.local.java import find_java


@pytest.fixture
def nothing_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty cache, and no memory of having looked."""
    monkeypatch.setenv("ODRADEK_CACHE", str(tmp_path / "cache"))
    kafka_home.cache_clear()
    yield tmp_path
    kafka_home.cache_clear()


def install_maven(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str | None) -> None:
    """Let `mvn` do what `script` says, or be missing."""
    find_java()  # before PATH changes, which it looks at
    folder.mkdir()
    if script is not None:
        (folder / "mvn").write_text(f"#!/bin/sh\n{script}\n")
        (folder / "mvn").chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin" if script is not None else str(folder))


@pytest.mark.needs("java")
def test_without_maven_the_error_says_what_to_install(nothing_fetched: Path, monkeypatch: pytest.MonkeyPatch):
    install_maven(nothing_fetched / "bin", monkeypatch, None)
    with pytest.raises(UnavailableError, match="install the package `maven`"):
        kafka_home()


@pytest.mark.needs("java")
def test_an_error_of_maven_is_reported_and_no_partial_download_stays(
    nothing_fetched: Path, monkeypatch: pytest.MonkeyPatch
):
    install_maven(nothing_fetched / "bin", monkeypatch, 'echo "[ERROR] the registry does not answer"; exit 1')
    with pytest.raises(UnavailableError, match="the registry does not answer"):
        kafka_home()
    assert list((nothing_fetched / "cache").iterdir()) == []


@pytest.mark.needs("java")
def test_the_jars_are_fetched_once(nothing_fetched: Path, monkeypatch: pytest.MonkeyPatch):
    count = nothing_fetched / "count"
    script = (
        f'echo >>{count}; for a; do case $a in -DoutputDirectory=*) mkdir "${{a#*=}}"; : >"${{a#*=}}/kafka_1.jar";;'
    )
    install_maven(nothing_fetched / "bin", monkeypatch, f"{script} esac; done")
    first = kafka_home()
    kafka_home.cache_clear()
    assert kafka_home() == first
    assert (first.jars / "kafka_1.jar").exists()
    assert count.read_text() == "\n"


@pytest.mark.needs("kafka")
def test_a_node_that_cannot_start_says_why(tmp_path: Path):
    kafka = KafkaBroker(tmp_path / "data", options={"log.retention.bytes": "many"}, heap="256M", short_lived=True)
    with pytest.raises(RuntimeError, match=r"Invalid value many for configuration log\.retention\.bytes"):
        kafka.start()
