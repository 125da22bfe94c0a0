"""Errors of pipelines: turns Spark's errors into one sentence about a key of the file, and tells which are final."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from odradek.model import OdradekError
from odradek.pipelines.config import TomlKeyError

_OUR_ERROR: Final = re.compile(r"^(?:[\w.]*\.)?odradek\.(?:[\w]+\.)*(\w+): (.+)$", re.MULTILINE)
_SQL_LINE: Final = re.compile(r"\bline (\d+),? pos \d+")
_NO_PACKAGE: Final = re.compile(r"No module named '(odradek|pyspark_odradek|numba|pyarrow|numpy|kio|re2|uvloop)[.\w]*'")
_NO_PYTHON: Final = re.compile(r'Cannot run program "([^"]+)"')
_RAISED: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)")
"""A Python traceback; the group is the line with the exception."""
_NO_START: Final = "Python worker failed to connect back"
_DATA_ERROR: Final = re.compile(r"\bSQLSTATE: (0A|22|56038)")
"""Spark's errors about data or unsupported features, which another attempt would meet again."""
_FINAL: Final = frozenset({"BadRowError", "ConfigurationError", "DataLossError", "TomlKeyError"})
"""Odradek's errors that another attempt would meet again."""


class PipelineError(OdradekError):
    """Pipelines failed. `failures` are their errors by the pipeline's name or by `FILE:LINE`."""

    def __init__(self, failures: Mapping[str, OdradekError]) -> None:
        super().__init__("; ".join(f"{name}: {failure}" for name, failure in failures.items()))
        self.failures = failures


def spark_errors() -> tuple[type[Exception], ...]:
    """Return the classes of errors that calls into Spark raise, also after its end."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError, ConnectionError)


@contextmanager
def errors_about(key: str) -> Iterator[None]:
    """Turn errors of Spark, and Odradek's that are not retriable, into a `TomlKeyError` about `key`."""
    try:
        yield
    except TomlKeyError:
        raise
    except OdradekError as error:
        if error.retriable:
            raise
        raise TomlKeyError(key, f"{key}: {error}") from error
    except spark_errors() as error:
        line = _SQL_LINE.search(str(error))
        raise TomlKeyError(key, f"{key}: {sentence_of(str(error))}", line=int(line[1]) if line else None) from error


def sentence_of(text: str) -> str:
    """Return a sentence on the cause in Spark's text: of the last Python traceback in it, else the first line."""
    if missing := _NO_PACKAGE.search(text):
        return (
            f"the Python of Spark's workers has no package {missing[1]}: install 'odradek[spark]' there, or set "
            "PYSPARK_PYTHON to a Python that has it"
        )
    if program := _NO_PYTHON.search(text):
        return f"Spark's workers have no program {program[1]}: set PYSPARK_PYTHON to their Python with odradek[spark]"
    if _NO_START in text:
        return (
            "Spark's Python did not start within 10 s: the machine is overloaded, or PYSPARK_PYTHON does not run there"
        )
    ours = _OUR_ERROR.findall(text)
    if ours:
        return str(ours[-1][1]).strip()
    if raised := _RAISED.findall(text):
        return str(raised[-1]).strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[0].rstrip(";") if lines else "Spark gave no reason"


def is_final(error: Any) -> bool:
    """Return whether another attempt would meet the same error."""
    if isinstance(error, OdradekError):
        return not error.retriable
    text = str(error)
    ours = _OUR_ERROR.findall(text)
    if ours:
        return ours[-1][0] in _FINAL
    return "AnalysisException" in text or any(each.search(text) for each in (_NO_PACKAGE, _DATA_ERROR))
