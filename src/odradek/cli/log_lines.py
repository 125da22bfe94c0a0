r"""Logging of a server process to standard error, one line for each entry, as text or JSON.

```
text   2026-11-21 03:50:06,505 INFO odradek.broker: broker 0 serves at PLAINTEXT://127.0.0.1:9092
json   {"time":"2026-11-21T03:50:06.505Z","level":"INFO","logger":"odradek.broker","message":"broker 0 serves …"}
```
Line ends and control characters are escaped, so that a client's name can't forge an entry. A traceback is the JSON
field `exception`, or follows the text, with `\n` for line ends. Uncaught exceptions of all threads are logged, too.
"""

import json
import logging
import sys
import threading
from datetime import UTC, datetime
from types import TracebackType
from typing import Final

from odradek.model.texts import one_line

FORMATS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")
_log = logging.getLogger("odradek.cli")
_TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def configure(format_name: str, level: str) -> None:
    """Write this process's log to standard error, in `format_name` (one of `FORMATS`), from `level` (of `LEVELS`) up.

    Python's warnings and uncaught exceptions are logged as well.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if format_name == "json" else TextLines(_TEXT))
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.captureWarnings(True)
    sys.excepthook = _uncaught
    sys.unraisablehook = _unraisable
    threading.excepthook = _uncaught_on_a_thread


def _uncaught(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
    _log.critical("The process ends: %s", error or kind.__name__, exc_info=(kind, error, traceback))


def _uncaught_on_a_thread(thread: threading.ExceptHookArgs) -> None:
    name = "?" if thread.thread is None else thread.thread.name
    error = thread.exc_value or thread.exc_type()
    _log.critical("The thread %s ends: %s", name, error, exc_info=error)


def _unraisable(found: "sys.UnraisableHookArgs") -> None:
    error = found.exc_value or found.exc_type()
    _log.error("%s %r", found.err_msg or "ignored in", found.object, exc_info=error)


class TextLines(logging.Formatter):
    """Formats an entry for people."""

    def format(self, record: logging.LogRecord) -> str:
        return one_line(super().format(record))


class JsonLines(logging.Formatter):
    """Formats an entry for programs. The time is UTC."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the entry as one JSON object."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = {
            "time": time.replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields, ensure_ascii=True, separators=(",", ":"))
