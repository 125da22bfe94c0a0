"""`odradek groups watch`: a live view of a group: state, generation, members, lag and the change of lag."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import Struct

from odradek.cli.checks import COUNT
from odradek.cli.common import cluster_options, console, print_json, table_options, terminal_width, with_admin
from odradek.cli.groups.options import group_option
from odradek.cli.groups.views import described
from odradek.cli.tables import table_lines
from odradek.clients import Admin
from odradek.clients.admin.descriptions import GroupDescription, GroupPartition
from odradek.clients.admin.group_records import GenerationReader
from odradek.model import ErrorCode, KafkaError, OdradekError
from odradek.model.texts import one_line
from odradek.texts.group_texts import assignment_text, coordinator_text

if TYPE_CHECKING:
    from rich.console import RenderableType

_DESCRIBE_TIMEOUT_S: Final = 5.0
"""Time after which the view shows that the coordinator does not answer, and the next attempt begins."""
_GENERATION_TIMEOUT_S: Final = 2.0
"""Time after which the last known generation is shown."""

LagChanges = Mapping[tuple[str, int], float]
"""Change of the lag per second, by topic and partition."""
_Table = tuple[Sequence[str], Sequence[Sequence[object]]]
"""Headings and rows."""


class Sample(Struct, frozen=True, kw_only=True):
    """A group's description at `at_s` (loop time); `group` is None if the group does not exist.

    If the group could not be read, `error` is the reason, and `group` is the last description.
    """

    group_id: str
    at_s: float
    group: GroupDescription | None
    generation: int | None = None
    error: str = ""


class View(Struct, frozen=True, kw_only=True):
    """The current sample, and the last one before it without an error."""

    before: Sample | None
    now: Sample

    def lag_changes(self) -> LagChanges:
        """Return the changes of lag for the partitions whose lag is in both samples."""
        before, now = self.before, self.now
        if before is None or before.group is None or now.group is None or now.error or now.at_s <= before.at_s:
            return {}
        lags = {(each.topic, each.partition): each.lag for each in before.group.partitions}
        return {
            (each.topic, each.partition): (each.lag - old) / (now.at_s - before.at_s)
            for each in now.group.partitions
            if each.lag is not None and (old := lags.get((each.topic, each.partition))) is not None
        }


def lag_per_s(changes: LagChanges, partitions: Iterable[GroupPartition]) -> float | None:
    """Return the sum of the changes of lag of `partitions`; None if no change is known."""
    known = [change for each in partitions if (change := changes.get((each.topic, each.partition))) is not None]
    return sum(known) if known else None


@click.command()
@group_option
@click.option(
    "--interval", "-i", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="Seconds between views."
)
@click.option("--count", "-c", type=COUNT, help="Exit after this number of views.")
@click.option("--partitions", "per_partition", is_flag=True, help="A row for each partition, not for each member.")
@table_options
@cluster_options
def watch(*, group: str, interval: float, count: int | None, per_partition: bool, as_json: bool) -> None:
    """Show a group's state, members and lag repeatedly, until Ctrl-C.

    A terminal is redrawn in place; otherwise each view is printed after the one before. The generation is unknown (-)
    until a rebalance is among the records of __consumer_offsets that were read: the last 10,000 of its partition, and
    all later ones.
    """

    async def work(client: Admin) -> None:
        samples = views(client, group, interval)
        with _quiet_clients():
            if as_json:
                await _print(samples, count, as_json=True, per_partition=per_partition)
            elif (screen := console()).is_terminal and not screen.is_dumb_terminal:
                await _redraw(samples, count, per_partition=per_partition)
            else:
                await _print(samples, count, as_json=False, per_partition=per_partition)

    with_admin(work)


@contextlib.contextmanager
def _quiet_clients() -> Iterator[None]:
    """Log no connection errors: the view shows them, and log lines would disturb a terminal that is redrawn."""
    loggers = [logging.getLogger(name) for name in ("odradek.clients", "odradek.clients.waiting")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


# ---- samples --------------------------------------------------------------------------------------------------------


async def views(client: Admin, group_id: str, interval_s: float) -> AsyncIterator[View]:
    """Yield a view every `interval_s`. Raises `OdradekError` if the first read fails, later if it is not retriable."""
    generations = client.generation_reader(group_id)
    first = await client.describe_group(group_id)
    loop = asyncio.get_running_loop()
    before: Sample | None = None
    now = Sample(group_id=group_id, at_s=loop.time(), group=first, generation=await _generation(generations))
    while True:
        yield View(before=before, now=now)
        await asyncio.sleep(max(now.at_s + interval_s - loop.time(), 0.0))
        if not now.error:
            before = now
        now = await _sample(client, group_id, generations, now)


async def _sample(client: Admin, group_id: str, generations: GenerationReader, last: Sample) -> Sample:
    reason = f"the coordinator of group {group_id!r} has not answered for {_DESCRIBE_TIMEOUT_S:.0f} s"
    at_s = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(_DESCRIBE_TIMEOUT_S):
            group = await client.describe_group(group_id)
        return Sample(group_id=group_id, at_s=at_s, group=group, generation=await _generation(generations))
    except TimeoutError:
        pass
    except OdradekError as error:
        if isinstance(error, KafkaError) and error.code == ErrorCode.group_id_not_found:
            return Sample(group_id=group_id, at_s=at_s, group=None)
        if not error.retriable:
            raise
        reason = str(error)
    shown = f"{reason}; trying again"
    return Sample(group_id=group_id, at_s=at_s, group=last.group, generation=last.generation, error=shown)


async def _generation(generations: GenerationReader) -> int | None:
    with contextlib.suppress(OdradekError, TimeoutError):
        async with asyncio.timeout(_GENERATION_TIMEOUT_S):
            await generations.read()
    return generations.generation


# ---- the view -------------------------------------------------------------------------------------------------------


async def _print(samples: AsyncIterator[View], count: int | None, *, as_json: bool, per_partition: bool) -> None:
    number = 0
    async for view in samples:
        if as_json:
            print_json(_object(view))
        else:
            console().print(*render(view, per_partition=per_partition), "", sep="\n")
        number += 1
        if number == count:
            return


async def _redraw(samples: AsyncIterator[View], count: int | None, *, per_partition: bool) -> None:
    from rich.console import Group
    from rich.live import Live

    number = 0
    with Live(console=console(), auto_refresh=False) as live:
        async for view in samples:
            live.update(Group(*render(view, per_partition=per_partition)), refresh=True)
            number += 1
            if number == count:
                return


def render(view: View, *, per_partition: bool) -> "list[RenderableType]":
    """Return the lines of a view, those of its table as wide as the terminal."""
    from rich.text import Text

    group, changes = view.now.group, view.lag_changes()
    if group is None:
        return [Text(one_line(f"group {view.now.group_id} does not exist any more"))]
    generation, lag = view.now.generation, _lag(group.partitions)
    head = (
        f"group {group.group_id}  state {group.group_state or '-'}  generation {_or_dash(generation)}  "
        f"members {len(group.members)}  lag {_or_dash(lag)} ({_signed(lag_per_s(changes, group.partitions))}/s)"
    )
    lines: list[RenderableType] = [
        Text(one_line(head)),
        Text(one_line(f"assignor {group.protocol or '-'}  coordinator {coordinator_text(group) or '-'}")),
    ]
    if view.now.error:
        lines.append(Text(one_line(view.now.error), style="red"))
    columns, rows = _partition_rows(group, changes) if per_partition else _member_rows(group, changes)
    (head, *body), hidden = table_lines(columns, rows, terminal_width())
    lines += [Text(head, style="bold"), *map(Text, body)]
    if hidden:
        lines.append(Text(f"not shown: {', '.join(hidden)} (--wide shows all)", style="dim"))
    return lines


def _member_rows(group: GroupDescription, changes: LagChanges) -> _Table:
    """Return a row for each member, and one for the partitions without a member."""
    owned: dict[str | None, list[GroupPartition]] = {member.member_id: [] for member in group.members}
    for each in group.partitions:
        owned.setdefault(each.member_id, []).append(each)
    members = {member.member_id: member for member in group.members}
    rows = []
    for member_id, partitions in owned.items():
        member = members.get(member_id or "")
        rows.append(
            (
                member_id, member and member.client_id, member and member.client_host, len(partitions),
                _lag(partitions), _signed(lag_per_s(changes, partitions)), _assignment(partitions),
            )
        )  # fmt: skip
    return ("CONSUMER-ID", "CLIENT-ID", "HOST", "#PARTITIONS", "LAG", "LAG/S", "PARTITIONS"), rows


def _partition_rows(group: GroupDescription, changes: LagChanges) -> _Table:
    rows = [
        (
            each.topic, each.partition, each.committed_offset, each.end_offset, each.lag,
            _signed(lag_per_s(changes, [each])), each.member_id,
        )
        for each in group.partitions
    ]  # fmt: skip
    return ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "LAG/S", "CONSUMER-ID"), rows


def _assignment(partitions: Iterable[GroupPartition]) -> str | None:
    return assignment_text((each.topic, each.partition) for each in partitions)


def _lag(partitions: Iterable[GroupPartition]) -> int | None:
    """Return the sum of the partitions' lags; None if no lag is known."""
    lags = [each.lag for each in partitions if each.lag is not None]
    return sum(lags) if lags else None


def _or_dash(number: int | None) -> str:
    return "-" if number is None else str(number)


def _signed(per_s: float | None) -> str:
    return "-" if per_s is None else f"{per_s:+.1f}"


def _object(view: View) -> dict[str, Any]:
    now, group, changes = view.now, view.now.group, view.lag_changes()
    shown: dict[str, Any] = {"group_id": now.group_id, "generation": now.generation, "error": now.error or None}
    if group is None:
        return shown
    shown |= described(group) | {"lag_per_s": lag_per_s(changes, group.partitions)}
    for fields, each in zip(shown["partitions"], group.partitions, strict=True):
        fields["lag_per_s"] = lag_per_s(changes, [each])
    return shown
