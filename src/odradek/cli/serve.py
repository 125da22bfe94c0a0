"""`odradek serve`: one broker, until SIGTERM or SIGINT.

Standard output has one line, `ready: HOST:PORT`, when the broker serves; everything else is the log, on standard error.
"""
# ruff: noqa: E402

import sys

# kio imports hypothesis where it is installed, to describe its types to it: a quarter of a second and 20 MB that a
# server has no use for. What is None here counts as not installed.
sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]

import asyncio
import logging
import os
import resource
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

import click

from odradek.broker.lifecycle import Broker
from odradek.config import BrokerConfig, load, parse_host_port, parse_listener
from odradek.model import ConfigurationError
from odradek.runtime import SystemClock, SystemDisk, SystemNetwork, system_entropy
from odradek.runtime.runtime import Runtime
from odradek.security import exposed_listeners
from odradek.stores import open_store

LOG_FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_MOST_OPEN_FILES: Final = 65_536


@click.command(name="serve")
@click.option("--listen", metavar="HOST:PORT", help="Where to listen; port 0 is any free one, which a restart keeps.")
@click.option("--advertise", metavar="HOST:PORT", help="What clients are told to connect to, if it is another address.")
@click.option("--data-dir", metavar="DIR", help="Where the partitions are kept.")
@click.option("--broker-id", type=click.IntRange(min=0), metavar="N", help="This broker's id in its cluster.")
@click.option("--metadata", metavar="URL", help="sqlite:///PATH or memory:; by default a file in DIR.")
@click.option("--config", metavar="FILE", help="Java properties, as Kafka's server.properties.")
@click.option("-o", "options", multiple=True, metavar="KEY=VALUE", help="One of Kafka's keys; may be repeated.")
@click.option("--allow-anonymous-network", is_flag=True, help="Listen beyond this machine without authentication.")
def command(
    *,
    listen: str | None,
    advertise: str | None,
    data_dir: str | None,
    broker_id: int | None,
    metadata: str | None,
    config: str | None,
    options: Sequence[str],
    allow_anonymous_network: bool,
) -> None:
    """Run one broker until it is told to stop. A flag beats -o, which beats the file."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format=LOG_FORMAT)
    overrides = dict(map(_key_and_value, options))
    if listen is not None:
        overrides["listeners"] = f"PLAINTEXT://{_address(listen)}"
    if advertise is not None:
        overrides["advertised.listeners"] = f"PLAINTEXT://{_address(advertise)}"
    if data_dir is not None:
        overrides["log.dirs"] = data_dir
    if broker_id is not None:
        overrides["broker.id"] = str(broker_id)
    loaded = load(config, overrides)
    if not allow_anonymous_network:
        _check_exposure(loaded)
    _allow_many_connections()
    with _new_runner() as runner:
        runner.run(_serve(loaded, metadata or f"sqlite:///{loaded.log_dirs[0]}/metadata.sqlite"))


def _key_and_value(option: str) -> tuple[str, str]:
    key, equals, value = option.partition("=")
    if not equals or not key.strip():
        raise ConfigurationError(f"-o takes KEY=VALUE, not {option!r}")
    return key.strip(), value


def _address(text: str) -> str:
    parse_host_port(text)
    return text


def _check_exposure(config: BrokerConfig) -> None:
    exposed = exposed_listeners(parse_listener(text).host for text in config.listeners)
    if exposed:
        raise ConfigurationError(
            f"{', '.join(host or 'every interface' for host in exposed)} can be reached from beyond this machine, and "
            "clients are not authenticated: say --allow-anonymous-network if that is meant, or listen on localhost"
        )


def _allow_many_connections() -> None:
    """Open as many files as the system lets us; the usual 1,024 are for programs without clients."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_OPEN_FILES)
    if soft < wanted:
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _new_runner() -> asyncio.Runner:
    """The event loop of uvloop where there is one: streams cost three to five times less on it."""
    try:
        import uvloop
    except ImportError:
        return asyncio.Runner()
    return asyncio.Runner(loop_factory=uvloop.new_event_loop)


async def _serve(config: BrokerConfig, metadata: str) -> None:
    stopping = asyncio.Event()
    _on_signals(stopping.set)
    runtime = Runtime(clock=SystemClock(), entropy=system_entropy(), disk=SystemDisk(), network=SystemNetwork())
    store = open_store(metadata, runtime, session_timeout_ms=config.zookeeper_session_timeout_ms)
    try:
        broker = Broker(config, runtime, store, note=f"odradek serve, process {os.getpid()}")
        await broker.start()
        print("ready: " + f"{broker.endpoint.host}:{broker.endpoint.port}", flush=True)
        await stopping.wait()
        await broker.stop()
    finally:
        await store.close()


def _on_signals(stop: Callable[[], None]) -> None:
    """A first SIGTERM or SIGINT stops the broker cleanly; a second one ends the process as the system does."""
    loop = asyncio.get_running_loop()

    def begin_to_stop(number: int) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            with suppress(ValueError):
                loop.remove_signal_handler(each)
        signal.signal(number, signal.SIG_DFL)
        stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, begin_to_stop, number)
