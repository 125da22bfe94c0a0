"""The module that PySpark imports, unguarded, in every job of an environment with Odradek."""

import subprocess
import sys

import pytest

pytest.importorskip("pyspark")

PROGRAM = """
import sys
{before}
import pyspark.sql.datasource
known = set(sys.modules)
import pyspark_odradek
print(hasattr(pyspark_odradek, "DefaultSource"))
print(*sorted({{name.partition(".")[0] for name in set(sys.modules) - known}}))
"""


def run(before: str = "") -> tuple[str, set[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)], capture_output=True, text=True, timeout=60, check=True
    )
    found, imported = done.stdout.splitlines()
    return found, set(imported.split())


def test_importing_pyspark_odradek_registers_the_data_source_and_imports_little_else() -> None:
    found, imported = run()
    assert found == "True"
    assert not imported & {"numba", "pyarrow", "pandas", "uvloop", "numpy"}


@pytest.mark.parametrize("missing", ["odradek.spark.source", "odradek.model", "re2"])
def test_a_broken_installation_hides_the_format_and_does_not_fail_pyspark(missing: str) -> None:
    found, _ = run(f"sys.modules[{missing!r}] = None")
    assert found == "False"


def test_the_data_source_has_the_name_of_the_format() -> None:
    from pyspark_odradek import DefaultSource

    assert DefaultSource.name() == "odradek"
