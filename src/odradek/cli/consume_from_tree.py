"""`odradek consume --zookeeper URL`: read as a consumer of generation 1, whose group is in the metadata tree.

That consumer is imported only for this: with its stores, it would slow down every other `odradek consume`.
"""

import asyncio
import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from odradek.cli.checks import COUNT, TREE_URL
from odradek.cli.common import client_settings, options, say, zookeeper_config_option, zookeeper_keys
from odradek.metadata import paths
from odradek.runtime import system_runtime
from odradek.values.record_formats import Formatter

if TYPE_CHECKING:
    from odradek.clients.zookeeper_consumer import KafkaStream
    from odradek.clients.zookeeper_consumer.machine.view import Ownership
    from odradek.config.zookeeper import ZookeeperKeys

tree_selection_options = options(
    click.option("--zookeeper", type=TREE_URL, help="Read as a consumer of generation 1, whose group is in this tree."),
    click.option("--threads", type=COUNT, metavar="N", help="With --zookeeper: streams of each topic."),
    click.option("--whitelist", metavar="REGEX", help="With --zookeeper: all topics with such names, also later ones."),
    click.option("--blacklist", metavar="REGEX", help="With --zookeeper: all topics but those with such names."),
    click.option("--verbose", "-v", is_flag=True, help="With --zookeeper: each step of a rebalance, to stderr."),
    zookeeper_config_option,
)


class TreeSelection(Struct, frozen=True, kw_only=True):
    """The values of the options of generation 1; without `zookeeper`, the others must not be given."""

    zookeeper: str | None
    threads: int | None
    whitelist: str | None
    blacklist: str | None
    verbose: bool


def tree_settings(properties: Sequence[str], *, group: str | None, from_beginning: bool) -> dict[str, Any]:
    """Return keyword arguments for a `ZookeeperConsumer`."""
    from odradek.clients.zookeeper_consumer.settings import ZookeeperConsumerSettings

    settings = asdict(zookeeper_keys()) | client_settings(ZookeeperConsumerSettings, properties)
    for name in ("bootstrap_servers", "zookeeper_connect"):  # of a file or a profile: --zookeeper names the tree
        settings.pop(name, None)
    settings |= {"auto_offset_reset": "smallest"} if from_beginning else {}
    return settings | ({} if group is None else {"group_id": group})


class _Enough(Exception):
    """As many records as were wanted have been written."""


class _Writer:
    def __init__(self, render: Formatter, count: int | None) -> None:
        self._render = render
        self._left = count

    async def write(self, stream: "KafkaStream") -> None:
        """Write the stream's records until it has none for `consumer.timeout.ms`. Raises `_Enough`."""
        from odradek.clients.zookeeper_consumer import ConsumerTimeoutError

        try:
            async for record in stream:
                if self._left == 0:
                    return
                sys.stdout.buffer.write(self._render(record))
                sys.stdout.buffer.flush()
                stream.mark_consumed()
                if self._left is not None:
                    self._left -= 1
                    if not self._left:
                        raise _Enough
        except ConsumerTimeoutError:
            return


async def consume_from_tree(
    selection: TreeSelection, topics: Sequence[str], settings: Mapping[str, Any], render: Formatter, count: int | None
) -> None:
    """Read until the wanted count, the time-out of all streams, or cancellation; say what the consumer owns."""
    from odradek.clients.zookeeper_consumer import TopicFilter, ZookeeperConsumer
    from odradek.clients.zookeeper_consumer.settings import zookeeper_consumer_settings
    from odradek.config.zookeeper import tree_url

    if selection.verbose:
        logging.getLogger("odradek.clients").setLevel(logging.INFO)
    url, threads, writer = tree_url(selection.zookeeper), selection.threads or 1, _Writer(render, count)
    await _check_tree(url, zookeeper_consumer_settings(settings))
    async with ZookeeperConsumer(url, **settings) as consumer:
        consumer.set_consumer_rebalance_listener(
            before_starting_fetchers=lambda owned: _say_owned(consumer.consumer_id, owned)
        )
        expression = selection.blacklist if selection.whitelist is None else selection.whitelist
        if expression is None:
            by_topic = await consumer.create_message_streams(dict.fromkeys(topics, threads))
            streams = [stream for some in by_topic.values() for stream in some]
        else:
            wanted = TopicFilter(expression=expression, is_white_list=selection.whitelist is not None)
            streams = await consumer.create_message_streams_by_filter(wanted, threads)
        writing = [asyncio.create_task(writer.write(stream)) for stream in streams]
        try:
            await asyncio.gather(*writing)
        except _Enough:
            return
        finally:
            for task in writing:
                task.cancel()
            await asyncio.gather(*writing, return_exceptions=True)


async def _check_tree(url: str, keys: "ZookeeperKeys") -> None:
    """Raise an error unless a cluster uses the tree: a consumer would create it, and wait for ever."""
    from odradek.stores import open_reader

    tree = open_reader(url, system_runtime(), zookeeper=keys)
    try:
        await tree.children(paths.BROKER_IDS)
    finally:
        await tree.close()


def _say_owned(consumer_id: str, owned: "Ownership") -> None:
    partitions: dict[str, list[str]] = {}
    for partition, thread in owned.items():
        partitions.setdefault(thread, []).append(str(partition))
    for thread, some in sorted(partitions.items()):
        say(f"odradek: {thread} owns {', '.join(some)}", is_remark=True)
    if not partitions:
        say(f"odradek: {consumer_id} owns no partition", is_remark=True)
