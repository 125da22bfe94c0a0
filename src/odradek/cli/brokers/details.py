"""`odradek brokers log-dirs`, `versions` and `features`: the logs on disks, and the APIs that brokers support."""

import asyncio
from collections.abc import Mapping, Sequence

import click

from odradek.cli.checks import ID, TOPIC_NAME
from odradek.cli.common import cluster_options, print_rows, say, table_options, with_admin
from odradek.clients import Admin
from odradek.clients.admin.features import BrokerVersions
from odradek.clients.admin.log_dirs import LogDirDescription
from odradek.model import ErrorCode, explained
from odradek.protocol.api import ApiKey


@click.command(name="log-dirs")
@click.argument("ids", nargs=-1, type=ID, metavar="[ID]...")
@click.option("--topic", "-t", "topics", multiple=True, type=TOPIC_NAME, help="Only logs of this topic.")
@table_options
@cluster_options
def log_dirs(*, ids: Sequence[int], topics: Sequence[str], as_json: bool) -> None:
    """Show each log in the data directories of brokers, by default of all, with its size."""

    async def work(client: Admin) -> dict[int, list[LogDirDescription]]:
        wanted = ids or [each.broker_id for each in (await client.describe_cluster()).brokers]
        found = await asyncio.gather(*map(client.describe_log_dirs, wanted))
        return dict(zip(wanted, found, strict=True))

    rows: list[tuple[int, str, str, int, int, bool]] = []
    for broker_id, directories in with_admin(work).items():
        for each in directories:
            if each.error_code != ErrorCode.none:
                say(f"odradek: broker {broker_id}, {each.log_dir}: {explained(each.error_code)}", is_remark=True)
            rows += [
                (broker_id, each.log_dir, *key, size, is_future)
                for is_future, sizes in ((False, each.sizes), (True, each.future_sizes))
                for key, size in sorted(sizes.items())
                if not topics or key.topic in topics
            ]
    names = ("broker_id", "log_dir", "topic", "partition", "size_bytes", "is_future")
    shown = rows if as_json else [(*row, "moves here" if is_future else "") for *row, is_future in rows]
    print_rows(("BROKER", "DIRECTORY", "TOPIC", "PARTITION", "BYTES", ""), shown, as_json=as_json, names=names)


@click.command()
@click.argument("broker_id", required=False, type=ID, metavar="[ID]")
@table_options
@cluster_options
def versions(*, broker_id: int | None, as_json: bool) -> None:
    """Show the APIs and their versions that a broker supports, by default any broker."""
    found = sorted(_versions(broker_id).api_versions.items())
    known = {each.value: each.name for each in ApiKey}
    rows = [(key, known.get(key), *limits) for key, limits in found]
    names = ("api_key", "name", "min_version", "max_version")
    print_rows(("API", "NAME", "FROM", "TO"), rows, as_json=as_json, names=names)


def _level(context: click.Context, option: click.Parameter, values: Sequence[str]) -> dict[str, int]:
    """Return the levels of `FEATURE=LEVEL` arguments."""
    del context, option
    levels = {}
    for value in values:
        name, _, level = value.partition("=")
        if not name or not level.isdecimal() or int(level) >= 2**15:
            raise click.BadParameter(f"{value!r} is not FEATURE=LEVEL, as in transaction.version=2")
        levels[name] = int(level)
    return levels


@click.command()
@click.option(
    "--upgrade", "upgrades", multiple=True, callback=_level, metavar="FEATURE=LEVEL", help="Use a higher level."
)
@click.option(
    "--downgrade", "downgrades", multiple=True, callback=_level, metavar="FEATURE=LEVEL", help="Use a lower level."
)
@table_options
@cluster_options
def features(*, upgrades: Mapping[str, int], downgrades: Mapping[str, int], as_json: bool) -> None:
    """Show or change the levels of features that the cluster uses (KIP-584); FROM and TO are what a broker supports."""
    if upgrades or downgrades:
        with_admin(lambda client: client.update_features(upgrades, downgrades))
        changed = {**upgrades, **downgrades}
        for name, level in changed.items():
            say(f"{name} is at level {level}.")
        return
    found = _versions(None)
    rows = [
        (
            name,
            *found.supported_features.get(name, (None, None)),
            found.finalized_features[name][1] if name in found.finalized_features else None,
        )
        for name in sorted({*found.supported_features, *found.finalized_features})
    ]
    names = ("name", "min_version", "max_version", "finalized_level")
    if rows or as_json:
        print_rows(("FEATURE", "FROM", "TO", "FINALIZED"), rows, as_json=as_json, names=names)
    else:
        click.echo("no features: this cluster has none to finalize")


def _versions(broker_id: int | None) -> BrokerVersions:
    return with_admin(lambda client: client.describe_broker_versions(broker_id))
