"""The Python of a local Spark's workers, which imports PySpark from the installed package.

Spark puts zip archives of PySpark and its own JAR first on the workers' path. The archives hold no compiled code, so
each new process of Python would compile PySpark again, which takes a second before a query reads its first record.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

from odradek.spark.local.cache import cached_script
from odradek.spark.local.launcher import start_warm, warm_folder

_WRAPPER: Final = """\
#!/bin/sh
# Starts Python without the archives of Spark on its path; PySpark is installed as a package.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
  case "$entry" in
    "{spark}"/python/lib/pyspark.zip | "{spark}"/python/lib/py4j-*-src.zip | "{spark}"/jars/spark-core_*.jar) ;;
    *) kept="${{kept:+$kept:}}$entry" ;;
  esac
done
export PYTHONPATH="$kept"
exec "{python}" -I -S "{launcher}" "$@"
"""
_LAUNCHER: Final = Path(__file__).with_name("launcher.py")

_chosen: Final[set[str]] = set()
"""The programs that `choose_python` has set."""


def choose_python(key: str, program: str | None) -> bool:
    """Set the environment variable `key` to `program`, and return whether `key` now has that value.

    A value that the user has set stays. With a `program` of None the variable is unset, unless the user has set it.
    """
    if os.environ.get(key) in _chosen:
        del os.environ[key]
    if program is not None and key not in os.environ:
        os.environ[key] = program
        _chosen.add(program)
    return program is not None and os.environ[key] == program


def restore_worker_python() -> None:
    """Write the script again if `PYSPARK_PYTHON` names it: each query starts it, and it may have been deleted."""
    if os.environ.get("PYSPARK_PYTHON") in _chosen:
        worker_python()


def worker_python() -> str:
    """Return the program for `PYSPARK_PYTHON`: a script that starts this Python, else this Python itself."""
    import pyspark

    installed = Path(pyspark.__file__).resolve().parent
    is_quotable = not set('"$`\\') & set(f"{installed}{sys.executable}{_LAUNCHER}")
    # A PySpark that was itself imported from an archive has no folder.
    if os.name != "posix" or not installed.is_dir() or not is_quotable:
        return sys.executable
    try:
        script = cached_script(
            "python", "python", _WRAPPER.format(spark=installed, python=sys.executable, launcher=_LAUNCHER)
        )
    except (OSError, ValueError):
        return sys.executable
    # Home directories may be mounted `noexec`.
    return str(script) if os.access(script, os.X_OK) else sys.executable


def cluster_python() -> str:
    """Return the program for `PYSPARK_PYTHON` on other machines that have this Python: the launcher beside it."""
    beside = Path(sys.executable).with_name("odradek-python")
    return str(beside) if beside.exists() else sys.executable


def start_warm_python(jvm: int) -> None:
    """Start the process that the workers of a JVM are forked from, before the first one is needed.

    It has the variables that Spark gives to workers, without which it would refuse to be forked. A failure costs time,
    and nothing else: then each worker imports by itself.
    """
    environment = {**os.environ, "PYTHONUNBUFFERED": "YES"}
    environment.setdefault("PYTHONHASHSEED", "0")
    if hasattr(os, "pidfd_open"):
        with suppress(OSError):
            start_warm(warm_folder(jvm), jvm, environment)
