"""The Python of a local Spark's workers, which imports PySpark from the installed package.

Spark puts zip archives of PySpark and its own JAR first on the workers' path. The archives hold no compiled code, so
each new process of Python would compile PySpark again, which takes a second before a query reads its first record.
"""

import os
import sys
from pathlib import Path
from typing import Final

from odradek.spark.cache import cached_script

_WRAPPER: Final = """\
#!/bin/sh
# Starts Python without the archives of Spark on its path; PySpark is installed as a package.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
  case "$entry" in
    "{spark}"/python/lib/*.zip | "{spark}"/jars/*.jar) ;;
    *) kept="${{kept:+$kept:}}$entry" ;;
  esac
done
export PYTHONPATH="$kept"
exec "{python}" "$@"
"""


def worker_python() -> str:
    """Return the program for `PYSPARK_PYTHON`: a script around this Python, or this Python where a script can't be."""
    import pyspark

    installed = Path(pyspark.__file__).parent
    is_quotable = not set('"$`\\') & set(f"{installed}{sys.executable}")
    # A PySpark that was itself imported from an archive has no folder.
    if os.name != "posix" or not installed.is_dir() or not is_quotable:
        return sys.executable
    try:
        script = cached_script("python", "python", _WRAPPER.format(spark=installed, python=sys.executable))
    except OSError:
        return sys.executable
    # Home directories may be mounted `noexec`.
    return str(script) if os.access(script, os.X_OK) else sys.executable
