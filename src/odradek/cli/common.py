"""Parts that the commands share: options for the cluster, running a coroutine, tables, JSON lines, progress."""

import asyncio
import base64
import contextlib
import errno
import json
import logging
import shlex
import sys
import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import click
from msgspec import Struct
from msgspec.structs import asdict

from odradek.cli.checks import ADDRESSES, key_and_value
from odradek.cli.process import until_terminated
from odradek.cli.profiles import properties_of_profile, seconds, timeout_of_environment
from odradek.cli.tables import table_lines
from odradek.clients import Admin
from odradek.clients.cluster import NoBrokerError
from odradek.clients.settings import ClientSettings, settings_of_properties
from odradek.config.definition import definitions, parse_all
from odradek.config.properties import decode_properties
from odradek.config.secrets import resolved
from odradek.config.zookeeper import ZookeeperKeys
from odradek.model import ConfigurationError, UnavailableError, bootstrap_addresses
from odradek.model.texts import in_json, one_line

if TYPE_CHECKING:
    from rich.console import Console

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


_BOOTSTRAP_SERVER: Final = "odradek.bootstrap_server"
_COMMAND_CONFIG: Final = "odradek.command_config"
_PROFILE: Final = "odradek.profile"
_TIMEOUT: Final = "odradek.timeout"
_REMARKS: Final = "odradek.remarks"
_ZOOKEEPER_CONFIG: Final = "odradek.zookeeper_config"
_DEFAULT_TIMEOUT_S: Final = 10.0
_MOST_CONNECTING_S: Final = 10.0
"""Kafka's `socket.connection.setup.timeout.ms`."""


def _remember(key: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Return an option's callback that keeps the value for this command as `key`."""
    return lambda ctx, _, value: ctx.meta.__setitem__(key, value)


def options(*added: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds options and arguments, in the order in which `--help` shows them."""

    def add(function: F) -> F:
        for option in reversed(added):
            function = option(function)
        return function

    return add


cluster_options = options(
    click.option(
        "--bootstrap-server", "-b", metavar="HOST:PORT[,…]", expose_value=False,
        type=ADDRESSES, callback=_remember(_BOOTSTRAP_SERVER), help="Brokers to ask first.  [default: localhost:9092]",
    ),
    click.option(
        "--command-config", metavar="FILE", expose_value=False, callback=_remember(_COMMAND_CONFIG),
        help="Client settings: Java properties, Kafka's keys.",
    ),
    click.option(
        "--profile", metavar="NAME", expose_value=False, callback=_remember(_PROFILE),
        help="Settings in ~/.config/odradek/config.toml.  [default: default, if it exists]",
    ),
    click.option(
        "--timeout", type=seconds, metavar="SECONDS", expose_value=False,
        callback=_remember(_TIMEOUT), help="How long to wait for brokers.  [default: 10]",
    ),
)  # fmt: skip
"""The context has the values, not the command's signature: `admin` and `client_settings` read them."""
zookeeper_config_option = click.option(
    "--zookeeper-config", metavar="FILE", envvar="ODRADEK_ZOOKEEPER_CONFIG", expose_value=False,
    callback=_remember(_ZOOKEEPER_CONFIG), help="TLS and login of ZooKeeper: the keys zookeeper.* in a broker's file.",
)  # fmt: skip
json_option = click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
_WIDE: Final = "odradek.wide"
wide_option = click.option(
    "--wide",
    is_flag=True,
    expose_value=False,
    callback=_remember(_WIDE),
    help="All columns, wider than the terminal if needed.",
)


table_options = options(json_option, wide_option)
"""Every command that prints a table has these."""


def client_settings(cls: type[ClientSettings] = ClientSettings, properties: Sequence[str] = ()) -> dict[str, Any]:
    """Return keyword arguments for a client with the settings `cls`, by the command's `cluster_options`.

    `--bootstrap-server` overrides `properties` (`KEY=VALUE`), which override the file of `--command-config`, which
    overrides environment and profile. Values may refer to secrets (`config.secrets`). Remarks name the keys of the file
    that have no effect. Raises `ConfigurationError` for an unreadable file, and for a property that `cls` lacks.
    """
    from odradek.clients.consumer.settings import ConsumerSettings
    from odradek.clients.producer.settings import ProducerSettings

    every = (cls, ClientSettings, ProducerSettings, ConsumerSettings)
    place, profile = properties_of_profile(_chosen(_PROFILE))
    try:
        found: dict[str, Any] = dict(settings_of_properties(resolved(profile), *every))
    except ConfigurationError as error:
        raise ConfigurationError(f"{place}: {error}") from None
    file = _chosen(_COMMAND_CONFIG)
    given = _read(file)
    try:
        found |= settings_of_properties(resolved(given), *every, ignored=lambda why: _remark(file, f"ignored: {why}"))
    except ConfigurationError as error:
        raise ConfigurationError(f"{file}: {error}") from None
    found |= settings_of_properties(resolved(settings_of(properties)), cls)
    if (address := chosen_address()) is not None:
        found["bootstrap_servers"] = address
    if "bootstrap_servers" in found:
        found["bootstrap_servers"] = ",".join(bootstrap_addresses([found["bootstrap_servers"]]))
    if found.get("security_protocol", "PLAINTEXT") == "PLAINTEXT":
        for name in [each for each in found if each.startswith(("sasl_", "ssl_"))]:
            _remark(file, f"{name.replace('_', '.')} has no effect while security.protocol is PLAINTEXT")
            del found[name]
    return _limits(found, is_admin=cls is ClientSettings) | found


def _limits(found: dict[str, Any], *, is_admin: bool) -> dict[str, Any]:
    """Return the limits of waiting that `found` leaves open; set the one of `--timeout` in `found`.

    Each of several addresses gets its share of the time. A request of an admin client is not waited for any longer.
    """
    timeout_s = _chosen(_TIMEOUT) or timeout_of_environment()
    if timeout_s is not None:
        found["default_api_timeout_ms"] = round(timeout_s * 1000)
    elif "default_api_timeout_ms" in found:
        return {}
    limit_ms = round((timeout_s or _DEFAULT_TIMEOUT_S) * 1000)
    addresses = str(found.get("bootstrap_servers", "")).count(",") + 1
    connecting_ms = max(1, round(min(_MOST_CONNECTING_S * 1000, limit_ms) / addresses))
    limits = {"default_api_timeout_ms": limit_ms, "socket_connection_setup_timeout_ms": connecting_ms}
    return limits | ({"request_timeout_ms": limit_ms} if is_admin else {})


def zookeeper_keys() -> ZookeeperKeys:
    """Return the keys in the file of `--zookeeper-config`; other keys of a broker are ignored."""
    found, known = _read(_chosen(_ZOOKEEPER_CONFIG), "--zookeeper-config"), definitions(ZookeeperKeys)
    meant = resolved({key: text for key, text in found.items() if key in known})
    return ZookeeperKeys(**parse_all(known, meant))  # type: ignore[arg-type]


def _chosen(key: str) -> Any:
    """Return the value that `_remember` has kept; None outside of a command."""
    context = click.get_current_context(silent=True)
    return None if context is None else context.meta.get(key)


def chosen_address() -> str | None:
    address: str | None = _chosen(_BOOTSTRAP_SERVER)
    return address


def choose_cluster(profile: str | None, file: str | None) -> None:
    """Let `client_settings` and `cluster_arguments` use a profile or a file, in place of the options of the command."""
    click.get_current_context().meta.update({_PROFILE: profile, _COMMAND_CONFIG: file})


def cluster_arguments() -> str:
    """Return the command's `cluster_options` as they were given, for commands on the same cluster."""
    file = _chosen(_COMMAND_CONFIG)
    given = {
        "--bootstrap-server": chosen_address(),
        "--command-config": None if file is None else str(Path(file).absolute()),
        "--profile": _chosen(_PROFILE),
    }
    return " ".join(f"{option} {shlex.quote(value)}" for option, value in given.items() if value is not None)


def admin() -> Admin:
    """Return an `Admin` for the cluster that the command's `cluster_options` name."""
    return Admin(**client_settings())


def settings_of(texts: Iterable[str]) -> dict[str, str]:
    """Return `KEY=VALUE` texts as a dict. Raises `click.BadParameter`, also for a key with two values."""
    found: dict[str, str] = {}
    for key, value in map(key_and_value, texts):
        if found.setdefault(key, value) != value:
            raise click.BadParameter(f"{key} is set twice, to {found[key]!r} and to {value!r}")
    return found


def check_together(*pairs: tuple[str, object, str, object]) -> None:
    """Raise `click.UsageError` for the first (option, its value, option, its value) of which both are given."""
    for first, first_value, second, second_value in pairs:
        if all(value is not None and value is not False for value in (first_value, second_value)):
            raise click.UsageError(f"{first} and {second} exclude each other: give only one of them")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine. Ctrl-C and SIGTERM cancel it, so that it leaves its group and cleans up.

    It runs on asyncio's own loop: uvloop's sometimes waits for ever in `close` for a TLS connection.
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="odradek: %(message)s")
    logging.getLogger("odradek.clients.waiting").setLevel(logging.INFO)
    try:
        return asyncio.run(until_terminated(work))
    except NoBrokerError as error:
        raise UnavailableError(
            f"{error} (is a broker running there? choose another address with --bootstrap-server)"
        ) from error


def with_admin(work: Callable[[Admin], Coroutine[Any, Any, T]]) -> T:
    """Run `work` with an `Admin` for the cluster that the command's `cluster_options` name."""

    async def connected() -> T:
        async with admin() as client:
            return await work(client)

    return run(connected())


def say(text: str, *, is_remark: bool = False) -> None:
    """Print a line that may have names, whose invisible characters are escaped; a remark to standard error."""
    click.echo(one_line(text), err=is_remark)


def print_json(value: object) -> None:
    """Print `value` as one line of JSON, with bytes as base64 and dataclasses as objects."""
    click.echo(json_line(value))


def print_rows(
    columns: Sequence[str], rows: Sequence[Sequence[object]], *, as_json: bool, names: Iterable[str] | None = None
) -> None:
    """Print a table, or each row as a line of JSON with the keys `names` (by default `columns` in lower case)."""
    keys = tuple(map(str.lower, columns) if names is None else names)
    print_listing(
        rows, columns, lambda row: row, as_json=as_json, as_object=lambda row: dict(zip(keys, row, strict=True))
    )


def print_listing(
    found: Iterable[T],
    columns: Sequence[str],
    row: Callable[[T], Sequence[object]],
    *,
    as_json: bool,
    as_object: Callable[[T], object] | None = None,
) -> None:
    """Print each of `found` as a line of JSON (of what `as_object` returns), or all of them as the rows of a table."""
    if as_json:
        for each in found:
            print_json(each if as_object is None else as_object(each))
    else:
        print_table(columns, [row(each) for each in found])


def json_line(value: object) -> str:
    """Return the line that `print_json` prints, without a line end."""
    return in_json(json.dumps(value, default=_plain, ensure_ascii=False, separators=(",", ":")))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table, on a terminal as wide as that, unless `--wide` is given (`tables`)."""
    width = terminal_width()
    lines, hidden = table_lines(columns, rows, width)
    click.echo(lines[0] if width is None else click.style(lines[0], bold=True))
    for line in lines[1:]:
        click.echo(line)
    if hidden:
        click.echo(f"not shown: {', '.join(hidden)} (--wide shows all)", err=True)


def terminal_width() -> int | None:
    """Return the number of characters in a line of standard output; None if it is no terminal, or with `--wide`."""
    return None if _chosen(_WIDE) or not sys.stdout.isatty() else console().width


def console() -> "Console":
    """Return the console of standard output."""
    from rich.console import Console

    class Piped(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError(errno.EPIPE, "the reader of the output has closed its end")

    made = Piped(highlight=False)
    return made if made.is_terminal else Piped(highlight=False, width=10_000)


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


def _read(path: str | None, option: str = "--command-config") -> Mapping[str, str]:
    if path is None:
        return {}
    try:
        return decode_properties(path, Path(path).read_bytes())
    except OSError as error:
        raise ConfigurationError(f"can't read {option} {path}: {error.strerror}") from None


def _remark(file: str | None, text: str) -> None:
    """Print once for a command what of its settings has no effect."""
    remarks: set[str] = click.get_current_context().meta.setdefault(_REMARKS, set())
    if (line := f"odradek: {file or 'settings'}: {text}") not in remarks:
        remarks.add(line)
        say(line, is_remark=True)


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
