"""Spark 4.1 with Iceberg's own JAR, in a folder of its own, as a reader and a peer of the tables that pyiceberg writes.

<cache>/iceberg-spark-<hash>/pyspark    PySpark 4.1, by pip; programs have the folder as their PYTHONPATH
<cache>/iceberg-<hash>/*.jar            Iceberg's JAR and SQLite's driver, by Maven
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from bench.peers.maven import fetch_jars
from odradek.model import UnavailableError
from odradek.spark.local.cache import cache_directory
from odradek.spark.local.java import find_java

_FILES: Final = Path(__file__).resolve().parent / "iceberg"
_INSTALL_S: Final = 600


def run_with_iceberg_jar(program: str, *arguments: str, timeout_s: float = 300) -> str:
    """Run a Python program on Spark 4.1 and return what it prints; its first argument is a list of the JARs.

    Raise `UnavailableError` if Spark or the JARs cannot be fetched, or if the program fails.
    """
    folder, jars = iceberg_spark()
    environment = os.environ | {"JAVA_HOME": str(find_java().home), "PYTHONPATH": str(folder)}
    for name in [name for name in environment if name.startswith(("PYSPARK_", "SPARK_", "ODRADEK_"))]:
        del environment[name]
    done = subprocess.run(
        [sys.executable, "-c", program, ",".join(map(str, jars)), *arguments],
        capture_output=True, text=True, timeout=timeout_s, check=False, env=environment,
    )  # fmt: skip
    if done.returncode:
        raise UnavailableError(f"the program on Spark 4.1 failed: {done.stderr[-2000:]}")
    return done.stdout


def iceberg_spark() -> tuple[Path, list[Path]]:
    """Return the folder of PySpark 4.1, and the JARs. Raise `UnavailableError` if they cannot be fetched."""
    jars = sorted(fetch_jars("iceberg", _FILES / "pom.xml").glob("*.jar"))
    packages = _FILES / "requirements.txt"
    folder = cache_directory() / f"iceberg-spark-{hashlib.sha256(packages.read_bytes()).hexdigest()[:16]}"
    if not folder.exists():
        _install(packages, folder)
    return folder, jars


def _install(packages: Path, folder: Path) -> None:
    """Let pip install into `folder`, which appears only when it is complete."""
    with tempfile.TemporaryDirectory(prefix="pip-", dir=folder.parent) as work:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--require-hashes", "--target", f"{work}/packages", "-r", str(packages)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
        except subprocess.TimeoutExpired:
            raise UnavailableError(f"pip did not install Spark 4.1 within {_INSTALL_S} s") from None
        if done.returncode:
            raise UnavailableError(f"pip can't install Spark 4.1: {done.stderr.strip()[-300:]}")
        with suppress(OSError):  # another process may have been faster
            Path(work, "packages").rename(folder)
