"""Fetches the jars of peers with Maven, once: `<cache>/<name>-<hash of the pom>/*.jar`."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from odradek.model import UnavailableError
from odradek.spark.local.cache import cache_directory
from odradek.spark.local.java import find_java

_FETCH_S: Final = 300


def fetch_jars(name: str, pom: Path) -> Path:
    """Return the folder with the jars of `pom`'s dependencies of scope `runtime`.

    Raise `UnavailableError` without Java or Maven, or if Maven can't reach a registry.
    """
    java = find_java()
    content = pom.read_bytes()
    jars = cache_directory() / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}"
    if not jars.exists():
        _fetch(content, jars, java.home)
    return jars


def _fetch(pom: bytes, jars: Path, java_home: Path) -> None:
    """Let Maven copy the jars into the folder `jars`, which appears only when it is complete."""
    maven = shutil.which("mvn")
    if maven is None:
        raise UnavailableError(f"the jars of {jars.name} come by Maven: install the package `maven`, which has mvn")
    jars.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="maven-", dir=jars.parent) as work:
        # Maven leaves a `target` beside its pom; this copy keeps the source tree clean.
        (Path(work) / "pom.xml").write_bytes(pom)
        fetched = Path(work) / "jars"
        command = [maven, "-q", "-B", "-f", f"{work}/pom.xml", "dependency:copy-dependencies"]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={fetched}"]
        environment = os.environ | {"JAVA_HOME": str(java_home)}
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=_FETCH_S, check=False, env=environment
            )
        except subprocess.TimeoutExpired:
            raise UnavailableError(
                f"Maven did not fetch the jars of {jars.name} within {_FETCH_S} s: look at its settings"
            ) from None
        if done.returncode != 0 or not any(fetched.glob("*.jar")):
            said = next((line for line in done.stdout.splitlines() if "ERROR" in line), "it said nothing")
            raise UnavailableError(f"Maven can't fetch the jars of {jars.name}: {said[:300]}")
        # Another process may have been faster; its jars are the same.
        with suppress(OSError):
            fetched.rename(jars)
