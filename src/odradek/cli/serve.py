"""`odradek serve`: one broker, until SIGTERM or SIGINT.

Standard output has one line, `ready: HOST:PORT`, when the broker serves; the log goes to standard error, one line an
entry (`log_lines`). With `--metrics-listen` a second port answers scrapers and probes.
"""

import asyncio
import logging
import os
import resource
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

import click

from odradek.broker.cluster.registration.directories import check_tree
from odradek.broker.lifecycle import Broker
from odradek.broker.log.directories.log_directories import checked_directories
from odradek.broker.log.segments.open_files import DEFAULT_OPEN_FILES
from odradek.broker.replication.reading.replica_selector import create_replica_selector
from odradek.broker.security.authorization import create_authorizer
from odradek.broker.security.listener_security import inter_broker_security
from odradek.broker.serving.server import check_listeners
from odradek.cli import exit_code, log_lines
from odradek.cli.checks import ADDRESS, ID, Checked, key_and_value
from odradek.cli.page_listener import PageListener, page_listener
from odradek.cli.page_server import check_packages, open_page, page_option
from odradek.cli.process import started_before, stop_on_signals
from odradek.config.broker import BrokerConfig
from odradek.config.environment import read_environment
from odradek.config.listener_settings import listener_settings
from odradek.config.listeners import ListenerAddress, parse_listener
from odradek.config.load import load
from odradek.config.zookeeper import tree_url
from odradek.model import ConfigurationError, OdradekError, StorageError, address_text, parse_host_port
from odradek.runtime import system_runtime
from odradek.runtime.garbage import FrozenSurvivors
from odradek.runtime.listening import check_address
from odradek.security import is_loopback
from odradek.stores import open_store
from odradek.stores.opening import check_url

_log = logging.getLogger("odradek.serve")
_MOST_OPEN_FILES: Final = 65_536
_OTHER_FILES: Final = 256
"""Descriptors other than those of log files and clients: the tree, scrapers, recovery, compaction."""
_FEWEST_OTHER_FILES: Final = 48
"""Minimum of `_OTHER_FILES`: twenty are always open, eight are for syncs, the rest for imports and checkpoints."""
_USUAL_CONNECTIONS: Final = 10_000


@click.command(name="serve")
@click.option(
    "--listen", type=ADDRESS, help="The address to listen on; port 0 takes a free one, which a restart keeps."
)
@click.option("--advertise", type=ADDRESS, help="The address for clients, if it is another one.")
@click.option("--data-dir", metavar="DIR", help="The data directory.")
@click.option("--broker-id", type=ID, metavar="N", help="This broker's id in its cluster.")
@click.option(
    "--metadata",
    type=Checked("url", check_url),
    help="sqlite:///PATH, zookeeper://HOST:PORT/CHROOT or memory:; else a file in DIR.",
)
@click.option("--config", metavar="FILE", help="Java properties, as Kafka's server.properties.")
@click.option("-o", "options", multiple=True, metavar="KEY=VALUE", help="One of Kafka's keys; may be repeated.")
@click.option("--metrics-listen", type=ADDRESS, help="The address of /metrics, /healthz and /readyz.")
@page_option
@click.option("--log-format", type=click.Choice(log_lines.FORMATS), default="text", show_default=True)
@click.option("--log-level", type=click.Choice(log_lines.LEVELS), default="info", show_default=True)
@click.option("--stop-with-stdin", is_flag=True, help="Stop when standard input ends, for supervisors.")
@click.option(
    "--allow-anonymous-network", is_flag=True, help="Accept clients of other machines without authentication."
)
def command(
    *,
    listen: str | None,
    advertise: str | None,
    data_dir: str | None,
    broker_id: int | None,
    metadata: str | None,
    config: str | None,
    options: Sequence[str],
    metrics_listen: str | None,
    page: str | None,
    log_format: str,
    log_level: str,
    stop_with_stdin: bool,
    allow_anonymous_network: bool,
) -> None:
    """Run one broker until SIGTERM or SIGINT.

    A flag beats -o, which beats environment variables (KAFKA_LOG_DIRS is log.dirs), which beat the file.
    """
    log_lines.configure(log_format, log_level)
    try:
        environment = read_environment(os.environ, metadata=metadata)
        for note in environment.notes:
            _log.info("%s", note)
        options_set = dict(map(key_and_value, options))
        flags = {
            "listeners": None if listen is None else f"PLAINTEXT://{listen}",
            "advertised.listeners": None if advertise is None else f"PLAINTEXT://{advertise}",
            "log.dirs": data_dir,
            "broker.id": None if broker_id is None else str(broker_id),
        }
        given = {key: value for key, value in flags.items() if value is not None}
        for key in given.keys() & options_set.keys():
            _log.warning("-o %s=%s has no effect, because a flag sets %s", key, options_set[key], given[key])
        overrides = {**environment.properties, **options_set, **given}
        loaded = load(config, overrides, defaults=environment.derived)
        metrics = None if metrics_listen is None else parse_host_port(metrics_listen)
        if not allow_anonymous_network:
            _check_exposure(loaded, metrics)
        listener = None
        if page is not None:
            check_packages()
            listener = page_listener(loaded, page, is_network_allowed=allow_anonymous_network)
        shown = None if page is None or listener is None else (page, listener)
        url = metadata or tree_url(loaded.zookeeper_connect or f"sqlite:///{loaded.log_dirs[0]}/metadata.sqlite")
        most_connections = _connection_limit()
        os.umask(0o077)  # only this user may read records and credentials
        with _new_runner() as runner:
            runner.run(_serve(loaded, url, metrics, shown, most_connections, stop_with_stdin=stop_with_stdin))
    except (OdradekError, OSError) as error:
        if log_format == "text":
            raise
        _log.critical("%s", error)
        raise click.exceptions.Exit(exit_code(error)) from error


def _check_exposure(config: BrokerConfig, metrics: tuple[str, int] | None) -> None:
    listeners = [parse_listener(text) for text in config.listeners]
    hosts = [each.host for each in listeners if not listener_settings(config, each.name).authenticates]
    exposed = [each for each in (hosts if metrics is None else [*hosts, metrics[0]]) if not is_loopback(each)]
    if exposed:
        raise ConfigurationError(
            f"{', '.join(host or 'every interface' for host in exposed)} can be reached from other machines, and "
            "clients are not authenticated there: add --allow-anonymous-network to allow that, use SASL or "
            "ssl.client.auth=required, or listen on localhost"
        )


def _connection_limit() -> int:
    """Raise the limit of open files to the system's maximum, and return the number of connections that fit.

    The log's files are counted first. A connection over the limit is closed, so one descriptor is always free to
    accept.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_OPEN_FILES)
    if soft == resource.RLIM_INFINITY:  # -1, which is below everything
        soft = wanted
    elif soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    # The log takes half of a small limit (`Broker`), and gives back what others need.
    others = max(min(_OTHER_FILES, soft // 4), _FEWEST_OTHER_FILES)
    room = max(soft - min(DEFAULT_OPEN_FILES, soft // 2) - others, soft // 8, 1)
    if room < _USUAL_CONNECTIONS:
        _log.warning("The limit of open files, %d, leaves room for %d connections; raise it with ulimit -n", soft, room)
    return room


def _new_runner() -> asyncio.Runner:
    """Return a runner with uvloop's event loop if it is installed: its streams cost three to five times less."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()

    class ServerLoop(uvloop.Loop):
        def close(self) -> None:
            """Leave it to the end of the process: uvloop sometimes waits here for ever for a TLS connection."""

    return asyncio.Runner(loop_factory=ServerLoop)


async def _serve(
    config: BrokerConfig,
    metadata: str,
    metrics: tuple[str, int] | None,
    page: tuple[str, PageListener] | None,
    most_connections: int,
    *,
    stop_with_stdin: bool,
) -> None:
    stopping = stop_on_signals(_log)
    if stop_with_stdin:
        await asyncio.get_running_loop().connect_read_pipe(lambda: _EndOfInput(stopping.set), sys.stdin)
    runtime = system_runtime()
    # First the refusals: a new tree, or a file in a directory of another broker, would stay.
    directories = checked_directories(runtime, config.log_dirs, config.broker_id)
    create_authorizer(config)
    inter_broker_security(config, runtime)
    if config.replica_selector_class:
        create_replica_selector(config.replica_selector_class)
    if directories.cluster_id is not None:  # else another broker may be creating the tree
        await check_tree(metadata, runtime, {config.broker_id: directories}, config)
    await check_listeners(config, runtime)
    if metrics is not None:
        await check_address(*metrics, " for metrics")
    if page is not None:
        await check_address(*parse_host_port(page[0]), " for the page")
    store = open_store(
        metadata,
        runtime,
        must_exist=directories.cluster_id is not None,
        session_timeout_ms=config.zookeeper_session_timeout_ms,
        connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        zookeeper=config,
    )
    try:
        broker = Broker(config, runtime, store, note="odradek serve", most_connections=most_connections)
        async with _monitoring(broker, metrics):
            if await started_before(stopping, broker.start()):
                FrozenSurvivors().start()
                address = address_text(broker.endpoint.host, broker.endpoint.port)
                async with _page(page, broker.endpoints, metadata, config):
                    print(f"ready: {address}", flush=True)
                    await _serve_until_stopped(broker, stopping)
            else:
                _log.info("Stopped by a signal before the broker was ready")
    finally:
        await store.close()


async def _serve_until_stopped(broker: Broker, stopping: asyncio.Event) -> None:
    """Wait for a signal and stop cleanly.

    Raises `StorageError` if no data directory is left, as a Kafka broker halts then.
    """
    events = [asyncio.ensure_future(each.wait()) for each in (stopping, broker.failed)]
    await asyncio.wait(events, return_when=asyncio.FIRST_COMPLETED)
    for event in events:
        event.cancel()
    if not broker.failed.is_set():
        await broker.stop()
        return
    broker.kill()
    reasons = "; ".join(map(str, broker.logs.directories.offline.values()))
    raise StorageError(f"broker {broker.broker_id} shuts down because all log dirs have failed: {reasons}")


@asynccontextmanager
async def _monitoring(broker: Broker, address: tuple[str, int] | None) -> AsyncIterator[None]:
    """Serve metrics and probes at `address`; if it is None, do not even import their code."""
    if address is None:
        yield
        return
    from odradek.broker.observing.monitor import Monitor

    monitor = Monitor(broker)
    await monitor.open(*address)
    try:
        yield
    finally:
        monitor.close()


@asynccontextmanager
async def _page(
    page: tuple[str, PageListener] | None, endpoints: Sequence[ListenerAddress], metadata: str, config: BrokerConfig
) -> AsyncIterator[None]:
    """Serve the page of the broker with these endpoints; its own address is in the log.

    A page that other machines can reach, or whose users log in, does not show the metadata tree, which has no ACLs for
    users of the page.
    """
    if page is None:
        yield
        return
    listen, used = page
    has_tree = metadata != "memory:" and is_loopback(parse_host_port(listen)[0]) and not used.requires_login
    address = next(address_text(each.host, each.port) for each in endpoints if each.name == used.name)
    server, _ = await open_page(
        listen, {**used.client, "bootstrap_servers": address}, login=used.requires_login,
        allow_anonymous_network=True, metadata=metadata if has_tree else None, zookeeper=config,
    )  # fmt: skip
    try:
        yield
    finally:
        await server.close()


class _EndOfInput(asyncio.Protocol):
    """Stops the broker at the end of standard input, when the parent process has ended."""

    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        _log.info("Standard input ended: shutting down")
        self._stop()
