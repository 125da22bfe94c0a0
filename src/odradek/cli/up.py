"""`odradek up`: several brokers on this machine, one process each, until SIGTERM or SIGINT.

Standard output has one line, `ready: HOST:PORT,HOST:PORT…` by broker id, when all brokers serve; with `--secure` a
second line is a command that connects to them. The supervisor logs to standard error, each broker to a file beside its
data.
"""

import asyncio
import logging
import os
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from odradek.broker.cluster.registration.directories import check_tree
from odradek.broker.log.checkpoints.meta_properties import is_data_directory
from odradek.broker.log.directories.log_directories import checked_directories
from odradek.cli import log_lines
from odradek.cli.checks import TREE_URL, key_and_value
from odradek.cli.page_server import check_packages, open_page, page_option
from odradek.cli.process import started_before, stop_on_signals
from odradek.config.load import load
from odradek.config.properties import decode_properties
from odradek.config.zookeeper import ZookeeperKeys, tree_url
from odradek.model import ConfigurationError, parse_host_port
from odradek.runtime import SystemClock, system_runtime
from odradek.runtime.listening import check_address
from odradek.security import is_loopback
from odradek.supervisor import BrokerCommand, Supervisor
from odradek.supervisor.security_files import BROKER_FILE, PROTOCOL, security_files

if TYPE_CHECKING:
    from odradek.page.server import PageServer

_log = logging.getLogger("odradek.up")
_HIGHEST_PORT = 65_535
_HOST: Final = "127.0.0.1"
_REPLICATION: Final = tuple(
    f"{each}.replication.factor" for each in ("default", "offsets.topic", "transaction.state.log")
)
_REPLICAS: Final = 3
"""Replication factor of topics for which the user sets none, or the number of brokers if that is lower.

An internal topic is created only when as many brokers run as its factor, and no consumer can join a group before.
"""

_SET_BY_UP: Final = {
    "advertised.listeners": "each advertises the address that it listens on; see --port",
    "broker.id": "they are numbered from 0 on; see --brokers",
    "listeners": "each has a port of its own; see --port",
    "log.dirs": "each has a directory of its own; see --data-dir",
}
"""Keys that `up` sets for each broker, and how to choose their values."""


@click.command(name="up")
@click.option(
    "--brokers", type=click.IntRange(1, 100), default=3, show_default=True, metavar="N", help="Number of brokers."
)
@click.option(
    "--port", type=click.IntRange(0, _HIGHEST_PORT), default=9092, show_default=True, metavar="P",
    help="The first broker's port; the others follow. 0 takes free ones, which a restart keeps.",
)  # fmt: skip
@click.option(
    "--data-dir", default="odradek-data", show_default=True, metavar="DIR", type=click.Path(file_okay=False),
    help="The directory of all brokers' data and logs, and of the metadata.",
)  # fmt: skip
@click.option("--metadata", type=TREE_URL, help="sqlite:///PATH or zookeeper://HOST:PORT/CHROOT; else a file in DIR.")
@click.option("--config", metavar="FILE", help="Java properties for every broker, as Kafka's server.properties.")
@click.option(
    "--secure", metavar="DIR", type=click.Path(file_okay=False),
    help="Use TLS and passwords. DIR gets certificates and client.properties, the administrator's login. The page of "
    "--page asks for a login, too, and shows no metadata tree.",
)  # fmt: skip
@click.option("-o", "options", multiple=True, metavar="KEY=VALUE", help="A key for every broker; may be repeated.")
@page_option
@click.option("--log-format", type=click.Choice(log_lines.FORMATS), default="text", show_default=True)
@click.option("--log-level", type=click.Choice(log_lines.LEVELS), default="info", show_default=True)
def command(
    *,
    brokers: int,
    port: int,
    data_dir: str,
    metadata: str | None,
    config: str | None,
    secure: str | None,
    options: Sequence[str],
    page: str | None,
    log_format: str,
    log_level: str,
) -> None:
    """Run several brokers that share one metadata tree. A broker that dies is started again.

    Topics get three replicas, or as many as there are brokers, unless default.replication.factor says otherwise.
    """
    log_lines.configure(log_format, log_level)
    if port and port + brokers - 1 > _HIGHEST_PORT:
        raise click.UsageError(
            f"{brokers} brokers from port {port} on need ports above {_HIGHEST_PORT}; choose a lower --port"
        )
    if own := sorted(dict(map(key_and_value, options)).keys() & _SET_BY_UP.keys()):
        raise click.UsageError(f"-o {own[0]} would be the same for every broker: {_SET_BY_UP[own[0]]}")
    if secure is not None and config is not None:
        raise ConfigurationError(
            f"--secure has a file of its own: add the keys of {config} to {secure}/broker.properties, or use -o"
        )
    if page is not None:
        check_packages()
        if not is_loopback(parse_host_port(page)[0]):
            raise ConfigurationError(
                "the page of up is for this machine; for others, run odradek page with TLS and a login"
            )
    directory, secured = Path(data_dir).absolute(), None if secure is None else Path(secure).absolute()
    if secured is not None and (file := secured / BROKER_FILE).exists():
        config = str(file)
    loaded = load(config, dict(map(key_and_value, options)))
    metadata = metadata or tree_url(loaded.zookeeper_connect or f"sqlite:///{directory}/metadata.sqlite")
    asyncio.run(_check(brokers, directory, port, page, metadata, loaded))
    os.umask(0o077)  # only this user may read records and credentials
    files = None if secured is None else security_files(secured)
    directory.mkdir(parents=True, exist_ok=True)
    if files is not None:
        config = str(files.broker)
    rest = ["--metadata", metadata]
    if config is not None:
        rest += ["--config", str(Path(config).absolute())]
    replicas = [f"{key}={min(_REPLICAS, brokers)}" for key in _REPLICATION if not loaded.is_explicit(key)]
    for option in [*replicas, *options]:
        rest += ["-o", option]
    rest += ["--log-format", log_format, "--log-level", log_level]
    protocol = "PLAINTEXT" if files is None else PROTOCOL
    commands = [_command(number, directory, protocol, port, rest) for number in range(brokers)]
    client = {} if files is None else decode_properties(str(files.client), files.client.read_bytes())
    login = "" if files is None else f" --command-config {shlex.quote(str(files.client))}"
    opened = None if page is None else partial(_open_page, page, client, metadata, loaded, login)
    asyncio.run(_run(Supervisor(commands, SystemClock()), None if files is None else files.client, opened))


async def _check(
    brokers: int, directory: Path, port: int, page: str | None, metadata: str, zookeeper: ZookeeperKeys
) -> None:
    """Raise an error if a broker would refuse to start, before anything is created."""
    runtime = system_runtime()
    if is_data_directory(runtime.disk, str(directory)):
        raise ConfigurationError(
            f"{directory} is the data directory of one broker, made by `odradek serve`: use another one for several "
            f"brokers, for instance: odradek up --brokers {brokers} --data-dir {shlex.quote(f'{directory}-up')}"
        )
    found = [checked_directories(runtime, [str(_folder(directory, each))], each) for each in range(brokers)]
    for number in range(brokers):
        await check_address(_HOST, port and port + number)
    if page is not None:
        await check_address(*parse_host_port(page), " for the page")
    if is_data_directory(runtime.disk, str(_folder(directory, brokers))):
        _log.warning("Broker %d, which has data in %s, does not start: see --brokers", brokers, directory)
    await check_tree(metadata, runtime, dict(enumerate(found)), zookeeper)


def _folder(directory: Path, broker_id: int) -> Path:
    return directory / f"broker-{broker_id}"


def _command(broker_id: int, directory: Path, protocol: str, port: int, rest: Sequence[str]) -> BrokerCommand:
    own = ["--broker-id", str(broker_id), "--data-dir", str(_folder(directory, broker_id)), "--stop-with-stdin"]
    listener = f"listeners={protocol}://{_HOST}:{port and port + broker_id}"
    return BrokerCommand(
        broker_id=broker_id,
        arguments=(sys.executable, "-m", "odradek", "serve", "-o", listener, *own, *rest),
        log_file=directory / f"broker-{broker_id}.log",
    )


async def _run(
    supervisor: Supervisor, client_properties: Path | None, page: Callable[[str], Awaitable["PageServer"]] | None
) -> None:
    stopping = stop_on_signals(_log)
    if not await started_before(stopping, supervisor.start()):
        return
    addresses = ",".join(supervisor.addresses)
    print(f"ready: {addresses}", flush=True)
    if client_properties is not None:
        file = shlex.quote(str(client_properties))
        print(f"use: odradek topics list -b {addresses} --command-config {file}", flush=True)
    try:
        server = None if page is None else await page(addresses)
        await stopping.wait()
        if server is not None:
            await server.close()
    finally:
        await supervisor.stop()


async def _open_page(
    listen: str, client: Mapping[str, str], metadata: str, zookeeper: ZookeeperKeys, login: str, addresses: str
) -> "PageServer":
    """Open the page of the brokers, and print its address.

    With --secure each user logs in, and the page has no tree: otherwise every local user would be an administrator.
    """
    from odradek.clients.settings import ClientSettings, settings_of_properties

    settings = {**settings_of_properties(client, ClientSettings), "bootstrap_servers": addresses}
    server, address = await open_page(
        listen, settings, login=bool(login), metadata=None if login else metadata, zookeeper=zookeeper,
        command_options=f"--bootstrap-server {addresses}{login}",
    )  # fmt: skip
    print(f"page: {address}", flush=True)
    return server
