"""The log of a server: one line an entry, whatever is in it."""

import json
import logging
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator

import pytest

from odradek.cli import log_lines
from odradek.cli.log_lines import JsonLines, TextLines

NASTY = "first\r\nsecond\x1b[31m\u2028third\t\x00 – ü"


def entry(message: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("odradek.x", logging.WARNING, __file__, 1, message, arguments, exc_info)
    record.created = 1_795_233_006.505
    record.msecs = 505
    return record


def failure() -> BaseException:
    try:
        raise ValueError("a\nb")
    except ValueError as error:
        return error


def test_json_is_an_object_on_one_line() -> None:
    line = JsonLines().format(entry("client %r said %s", "c", NASTY))
    assert line.isascii()
    assert line.isprintable()
    assert json.loads(line) == {
        "time": "2026-11-21T03:50:06.505Z",
        "level": "WARNING",
        "logger": "odradek.x",
        "message": f"client 'c' said {NASTY}",
    }


def test_a_text_entry_is_one_line_without_control_characters() -> None:
    line = TextLines("%(levelname)s %(name)s: %(message)s").format(entry("said %s", NASTY))
    assert line == "WARNING odradek.x: said first\\r\\nsecond\\x1b[31m\\u2028third\\t\\x00 – ü"


def test_a_traceback_is_on_the_line() -> None:
    record = entry("failed", error=failure())
    found = json.loads(JsonLines().format(record))
    assert found["message"] == "failed"
    assert found["exception"].startswith("Traceback (most recent call last):\n")
    assert found["exception"].endswith("ValueError: a\nb")
    line = TextLines("%(message)s").format(entry("failed", error=failure()))
    assert line.startswith("failed\\nTraceback (most recent call last):\\n")
    assert "\n" not in line


@pytest.fixture
def restored_logging() -> Iterator[None]:
    root = logging.getLogger()
    hooks = sys.excepthook, sys.unraisablehook, threading.excepthook
    handlers, level = list(root.handlers), root.level
    yield
    logging.captureWarnings(False)
    sys.excepthook, sys.unraisablehook, threading.excepthook = hooks
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("restored_logging")
def test_entries_below_the_level_are_left_out_and_warnings_are_entries(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log_lines.configure("json", "warning")
    logging.getLogger("odradek.x").info("no")
    logging.getLogger("odradek.x").warning("yes")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(False)
        logging.captureWarnings(True)
        warnings.warn("old\nhabit", DeprecationWarning, stacklevel=1)
    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert (first["message"], second["logger"]) == ("yes", "py.warnings")
    assert "old\nhabit" in second["message"]


PROGRAM = """
import threading
from odradek.cli import log_lines
log_lines.configure("{format}", "info")
class Broken:
    def __del__(self):
        raise ValueError("in a finalizer")
def work():
    raise ValueError("on a thread")
Broken()
thread = threading.Thread(target=work, name="writer")
thread.start()
thread.join()
raise ValueError("at the end\\nof all")
"""


@pytest.mark.parametrize("format_name", log_lines.FORMATS)
def test_an_uncaught_exception_of_any_thread_is_one_line(format_name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("{format}", format_name)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert len(lines) == 3, done.stderr
    for line, words in zip(lines, ("in a finalizer", "on a thread", "at the end"), strict=True):
        assert words in line
        if format_name == "json":
            assert "Traceback" in json.loads(line)["exception"]
