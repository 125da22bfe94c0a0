"""Errors of pipelines: turns Spark's errors into one sentence about a key of the file, and tells which are final.

Spark's errors have a text and, without Spark Connect, the JVM's stack trace with the causes; `details_of` returns both
as one text, which the other functions read.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from odradek.config.toml import TomlKeyError, TomlPreconditionError
from odradek.model import OdradekError, is_mistake
from odradek.pipelines.config.pipelines import AnyPipeline, MirrorPipeline

_OUR_ERROR: Final = re.compile(r"(?:^|: )(?:[\w.]*\.)?odradek\.(?:[\w]+\.)*(\w+): (.+)$", re.MULTILINE)
_SQL_LINE: Final = re.compile(r"\bline (\d+),? pos \d+")
_NO_PACKAGE: Final = re.compile(
    r"(?:No module named '|Failed to find the data source: )(odradek|pyspark_odradek|pyarrow|numpy|kio|re2|uvloop)\b"
)
_NO_PYTHON: Final = re.compile(r'Cannot run program "([^"]+)"')
_RAISED: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*(\S.*)")
"""A Python traceback; the group is the line with the exception."""
_NO_START: Final = "Python worker failed to connect back"
_JAVA_ERROR: Final = re.compile(r"^(?:: |Caused by: )([\w.$]+?)([\w$]+)(?:: (.*))?$", re.MULTILINE)
"""A cause in a stack trace of the JVM: its package, class and message."""
_FINAL_STATE: Final = re.compile(r"\bSQLSTATE: (0A|22|42|56038|P0001)")
"""Spark's errors about data, unsupported features, names and syntax, which another attempt would meet again."""
_FINAL_CLASS: Final = re.compile(
    r"^(?:: |Caused by: )?(?:[\w$]+\.)*(?:\w*AnalysisException|ParseException|AccessControlException|"
    r"AccessDeniedException)(?::|$)",
    re.MULTILINE,
)
"""Classes of Spark, Hadoop and Java, at the beginning of a line, where no text of a record is."""
_FINAL: Final = frozenset({"BadRowError", "ConfigurationError", "DataLossError", "PreconditionError", "TomlKeyError"})
"""Odradek's errors that another attempt would meet again."""
_SQL_CONTEXT: Final = re.compile(r"^== SQL(?: of .*)? \(line (\d+), position \d+\) ==", re.MULTILINE)
_OF_QUERY: Final = re.compile(r"AnalysisException: |\bSQLSTATE: P0001")
_NO_TOPIC: Final = re.compile(r"there is no topic '([^']+)'")
_PYSPARK_CLASS: Final = re.compile(r"^pyspark\.[\w.]+: (?=\[)")
_TERMS: Final = {
    "failOnDataLoss=false": "source.fail_on_data_loss = false",
    "startingOffsetsByTimestampStrategy = latest": "a later source.since",
}
"""Advice in messages of the Spark source, and the key of a pipeline's file that follows it."""
_LONGEST: Final = 1000
"""Limit of a sentence, in characters: Spark's may quote a record or a plan."""


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
        raise (TomlKeyError if is_mistake(error) else TomlPreconditionError)(key, f"{key}: {error}") from error
    except spark_errors() as error:
        line = _SQL_LINE.search(str(error))
        raise TomlKeyError(
            key, f"{key}: {sentence_of(details_of(error))}", line=int(line[1]) if line else None
        ) from error


def sentence_of(text: str) -> str:
    """Return a sentence on the cause in Spark's text: of the last Python traceback in it, else of Spark or Java."""
    sentence = _sentence_of(text)
    return sentence if len(sentence) <= _LONGEST else sentence[: _LONGEST - 1] + "…"


def _sentence_of(text: str) -> str:
    if missing := _NO_PACKAGE.search(text):
        return (
            f"the Python of Spark's workers has no package {missing[1]}: install Odradek with its extra spark there, "
            "or set PYSPARK_PYTHON to a Python that has it"
        )
    if program := _NO_PYTHON.search(text):
        return f"Spark's workers have no program {program[1]}: set PYSPARK_PYTHON to their Python with Odradek"
    if _NO_START in text:
        return (
            "Spark's Python did not start within 10 s: the machine is overloaded, or PYSPARK_PYTHON does not run there"
        )
    ours = _OUR_ERROR.findall(text)
    if ours:
        return str(ours[-1][1]).strip()
    if raised := _RAISED.findall(text):
        return _PYSPARK_CLASS.sub("", str(raised[-1])).rstrip("; ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    first = lines[0].rstrip(";") if lines else "Spark gave no reason"
    causes = [_described(*each) for each in _JAVA_ERROR.findall(text)]
    if causes and first.startswith("An error occurred while calling"):
        first = causes[0]
    # The innermost cause tells what to mend: the outer ones say which of Spark's steps failed.
    return first if not causes or causes[-1].partition(": ")[2] in first else f"{first} ({causes[-1]})"


def _described(package: str, name: str, message: str) -> str:
    return message if message and package.startswith("org.apache.spark.") else f"{name}: {message}".removesuffix(": ")


def details_of(error: Exception) -> str:
    """Return an error's text and, if it is Spark's, the JVM's stack trace with its causes."""
    trace = getattr(getattr(error, "_cause", None) or error, "_stackTrace", None)
    return f"{error}\n\n{trace}" if trace else str(error)


def with_notes(error: Exception) -> str:
    """Return an error's text, with its notes in brackets."""
    return " ".join((str(error), *(f"({note})" for note in getattr(error, "__notes__", ()))))


def is_gone(error: Any) -> bool:
    """Return whether an error of a call into Spark says that the JVM has ended, without which no attempt can run."""
    from py4j.protocol import Py4JNetworkError

    return isinstance(error, (Py4JNetworkError, ConnectionError))


def is_final(error: Any) -> bool:
    """Return whether another attempt would meet the same error, given as an exception or as `details_of` it."""
    if isinstance(error, OdradekError):
        return not error.retriable
    from pyspark.errors import AnalysisException

    if isinstance(error, (AnalysisException, PermissionError, FileNotFoundError, NotADirectoryError)) or is_gone(error):
        return True
    text = error if isinstance(error, str) else details_of(error)
    ours = _OUR_ERROR.findall(text)
    if ours:
        return ours[-1][0] in _FINAL
    return any(each.search(text) for each in (_NO_PACKAGE, _FINAL_STATE, _FINAL_CLASS))


def failure_of(details: str, pipeline: AnyPipeline) -> OdradekError:
    """Return the error of a query that failed: a `TomlKeyError` if it is about a key of the pipeline's file."""
    sentence = sentence_of(details)
    for term, key in _TERMS.items():
        sentence = sentence.replace(term, key)
    about, line = _key_of(details, pipeline)
    return TomlKeyError(about, f"{about}: {sentence}", line=line) if about else OdradekError(sentence)


def _key_of(details: str, pipeline: AnyPipeline) -> tuple[str, int | None]:
    """Return the key that an error is about, and the line within its value; an empty text and None if unknown."""
    ours = _OUR_ERROR.findall(details)
    if ours and ours[-1][0] == "DataLossError":
        return "source.fail_on_data_loss", None
    if missing := _NO_TOPIC.search(ours[-1][1] if ours else ""):
        streams = () if isinstance(pipeline, MirrorPipeline) else pipeline.streams
        tables = [f"streams.{each.name}" for each in streams if missing[1] in each.topics]
        return f"{(tables or ['source'])[0]}.topics", None
    if isinstance(pipeline, MirrorPipeline):
        return "", None
    if ours and ours[-1][0] == "BadRowError":
        return "on_bad_row", None
    if pipeline.sink.function is not None and not ours and _RAISED.search(details):
        return "sink.function", None
    if pipeline.sql is not None and (context := _SQL_CONTEXT.search(details)):
        return "sql", int(context[1])
    return pipeline.query_key if _OF_QUERY.search(details) else "", None
