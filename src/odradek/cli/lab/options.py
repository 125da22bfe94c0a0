"""Options of `odradek lab` that describe a case: on the command line, in a TOML file, or a live group."""

from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from odradek.cli.checks import usage_errors
from odradek.cli.common import cluster_options, with_admin
from odradek.lab.case import Case, LabError
from odradek.lab.live import read_case
from odradek.lab.notation import case_of_texts
from odradek.lab.toml_cases import parse_case
from odradek.lab.what_if import Change, Pauses, pauses

_MOST_PAST_REBALANCES = 200

_OPTIONS = (
    click.option(
        "--file",
        "file",
        type=click.Path(exists=True, dir_okay=False),
        metavar="FILE.toml",
        help="A case in a file; the other options add to it.",
    ),
    click.option("--group", "-g", metavar="GROUP", help="A live group: its topics, members and what they own."),
    click.option("--topic", "-t", "topics", multiple=True, metavar="TOPIC=N", help="A topic of N partitions."),
    click.option(
        "--members",
        "--member",
        "-m",
        "members",
        multiple=True,
        metavar="N|NAME[=TOPIC,…]",
        help="N members c0, c1, … of all topics, or one member and its topics (all without '=').",
    ),
    click.option("--owned", multiple=True, metavar="NAME=TOPIC:0-3,7", help="What a member owned before."),
    click.option("--rack", "racks", multiple=True, metavar="NAME=RACK|A,B,…", help="A member's rack; all in turn."),
    click.option(
        "--replica-rack",
        "replica_racks",
        multiple=True,
        metavar="TOPIC=A+B,C,…",
        help="Racks with a replica: A and B of partition 0, C of 1, …; the list is repeated.",
    ),
    click.option("--instance", "instances", multiple=True, metavar="NAME=ID", help="A static member's instance id."),
    click.option(
        "--threads", multiple=True, metavar="[NAME=]N", help="Threads of a consumer, or of all, in generation 1."
    ),
)


class Given(Struct, frozen=True, kw_only=True):
    """The case that the options describe."""

    case: Case
    strategy: str | None
    """The strategy of the file or of the live group."""
    group: str | None = None


def case_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that describe a case; the command gets it as `given`."""

    @wraps(function)
    def command(*, file: str | None, group: str | None, **options: Any) -> None:
        texts: dict[str, Sequence[str]] = {
            key: options.pop(key)
            for key in ("topics", "members", "owned", "racks", "replica_racks", "instances", "threads")
        }
        base, strategy = _base(file, group)
        with usage_errors():
            case = case_of_texts(base=base, **texts)
        if not case.members:
            raise click.UsageError("the case has no member: give a number of them, such as --members 5")
        function(given=Given(case=case, strategy=strategy, group=group), **options)

    for option in reversed(_OPTIONS):
        command = option(command)
    return cluster_options(command)


strategy_option = click.option(
    "--strategy", "-s", metavar="NAME", help="range, sticky, …, or an import path.  [default: the group's, or range]"
)


def past_pauses(given: Given, change: Change) -> Pauses | None:
    """Return how long past rebalances of the live group took, from its journal; None without a group or a journal."""
    group = given.group
    if group is None:
        return None

    return pauses(
        with_admin(lambda client: client.rebalance_history(group, limit=_MOST_PAST_REBALANCES)), change.causes()
    )


def _base(file: str | None, group: str | None) -> tuple[Case | None, str | None]:
    if file is not None and group is not None:
        raise click.UsageError("give --file or --group, not both")
    if group is not None:
        case, strategy = with_admin(lambda client: read_case(client, group))
        return case, strategy or None
    if file is None:
        return None, None
    try:
        return parse_case(Path(file).read_text(encoding="utf-8"), file)
    except UnicodeDecodeError:
        raise LabError(f"{file} is not UTF-8 text") from None
