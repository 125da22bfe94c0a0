"""Parts that the commands share: options for the cluster, running a coroutine, tables, JSON lines, progress."""

import asyncio
import base64
import contextlib
import json
import logging
import sys
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click
from msgspec import Struct
from msgspec.structs import asdict

from odradek.cli.process import until_terminated
from odradek.clients import Admin
from odradek.clients.cluster import NoBrokerError
from odradek.clients.settings import ClientSettings, settings_of_properties
from odradek.config import parse_properties
from odradek.model import ConfigurationError, UnavailableError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


def cluster_options(function: F) -> F:
    """Add `--bootstrap-server` and `--command-config`, which every command for a cluster has."""
    function = click.option("--command-config", metavar="FILE", help="Client settings: Java properties, Kafka's keys.")(
        function
    )
    return click.option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT[,…]",
        help="Brokers to ask first.  [default: localhost:9092]",
    )(function)


json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")


def client_settings(
    bootstrap_server: str | None,
    command_config: str | None,
    cls: type[ClientSettings] = ClientSettings,
    properties: Sequence[str] = (),
) -> dict[str, Any]:
    """Return keyword arguments for a client with the settings `cls`.

    `bootstrap_server` overrides `properties` (`KEY=VALUE`), which override the file `command_config`. Raises
    `ConfigurationError` for an unreadable file, a key of the file that no client has, and a property that `cls` lacks.
    """
    from odradek.clients.consumer.settings import ConsumerSettings
    from odradek.clients.producer.settings import ProducerSettings

    every = (cls, ClientSettings, ProducerSettings, ConsumerSettings)
    found: dict[str, Any] = dict(settings_of_properties(_read(command_config), *every))
    found |= settings_of_properties(dict(map(key_and_value, properties)), cls)
    if bootstrap_server is not None:
        found["bootstrap_servers"] = bootstrap_server
    return found


def admin(bootstrap_server: str | None, command_config: str | None) -> Admin:
    """Return an `Admin` for the cluster that the options name."""
    return Admin(**client_settings(bootstrap_server, command_config))


def key_and_value(text: str) -> tuple[str, str]:
    """Split `KEY=VALUE` into its two texts. Raises `click.BadParameter`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise click.BadParameter(f"{text!r} is not KEY=VALUE")
    return key.strip(), value


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine on uvloop. Ctrl-C and SIGTERM cancel it, so that it leaves its group and cleans up."""
    import uvloop

    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="odradek: %(message)s")
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(until_terminated(work))
    except NoBrokerError as error:
        raise UnavailableError(
            f"{error} (is a broker running there? choose another address with --bootstrap-server)"
        ) from error


def print_json(value: object) -> None:
    """Print `value` as one line of JSON, with bytes as base64 and dataclasses as objects."""
    click.echo(json_line(value))


def json_line(value: object) -> str:
    """Return the line that `print_json` prints, without a line end."""
    return json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":"))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print aligned columns: numbers to the right, None as a dash. Lines are only cut on a terminal."""
    if sys.stdout.isatty():
        console().print(table(columns, rows))
        return
    # Rich takes a millisecond for each row, and a file may get a hundred thousand rows.
    cells = [columns, *(["-" if cell is None else str(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    aligned = [str.rjust if _is_number(rows, index) else str.ljust for index in range(len(columns))]
    for line in cells:
        padded = (align(cell, width) for align, cell, width in zip(aligned, line, widths, strict=True))
        click.echo("  ".join(padded).rstrip())


def console() -> "Console":
    """Return the console of standard output."""
    from rich.console import Console

    made = Console(highlight=False)
    return made if made.is_terminal else Console(highlight=False, width=10_000)


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> "Table":
    """Return a table for a terminal."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, header_style="bold")
    for index, column in enumerate(columns):
        made.add_column(column, justify="right" if _is_number(rows, index) else "left", no_wrap=True)
    for row in rows:
        made.add_row(*("-" if cell is None else str(cell) for cell in row))
    return made


def _is_number(rows: Sequence[Sequence[object]], index: int) -> bool:
    """Return whether a column has only numbers."""
    return bool(rows) and all(isinstance(row[index], int | None) for row in rows)


class Progress(Protocol):
    """A counter of finished work."""

    def __call__(self, amount: int) -> None:
        """Add to the finished work."""


@contextlib.contextmanager
def progress(description: str, total: int | None, *, unit: str, wanted: bool = True) -> Iterator[Progress]:
    """Yield a counter, shown as a bar if `wanted` and stderr is a terminal; a `total` of None is unknown."""
    if not wanted or not sys.stderr.isatty():
        yield lambda _amount: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    counted = "{task.completed:,.0f}" if total is None else "{task.completed:,.0f} of {task.total:,.0f}"
    with Bar(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn(f"{counted} {unit}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bar:
        task = bar.add_task(description, total=total)
        yield lambda amount: bar.advance(task, amount)


def _read(path: str | None) -> Mapping[str, str]:
    if path is None:
        return {}
    try:
        return parse_properties(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"can't read --command-config {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"--command-config {path} is not UTF-8 text") from None


def _plain(value: object) -> object:
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, Struct):
        return asdict(value)
    if isinstance(value, uuid.UUID):
        return str(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"no JSON for {type(value).__name__}")
