"""`odradek groups reset`: set the committed offsets of groups without members; a dry run by default."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

import click
from msgspec import Struct, field

from odradek.cli.checks import OFFSET
from odradek.cli.common import cluster_options, print_json, print_table, say, table_options, with_admin
from odradek.cli.groups.options import GroupSelection, groups_options, report
from odradek.cli.partition_lists import TOPICS, partitions_of_topics, replicas_of, topic_and_partitions
from odradek.clients import Admin, OffsetAndMetadata
from odradek.clients.admin.descriptions import GroupDescription
from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition, UnavailableError
from odradek.model.texts import several_lines
from odradek.texts.offset_resets import Goal, new_offset, partition_offsets, refusal
from odradek.texts.offset_specs import PlannedOffset, csv_line, duration_ms, read_plan, time_ms


class _Scope(Struct, frozen=True, kw_only=True):
    """The partitions to reset: those of `topics`, else those in `file`, else all that have committed offsets."""

    selection: GroupSelection
    topics: tuple[str, ...] = ()
    file: IO[bytes] | None = None


class _Reset(Struct):
    """One group's committed offsets, the goal of each partition to reset, and the new offsets."""

    group_id: str
    committed: Mapping[TopicPartition, int]
    goals: Mapping[TopicPartition, Goal]
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


@click.command()
@groups_options
@click.option(
    "--topic", "-t", "topics", multiple=True, type=TOPICS, help="A topic or some partitions; may be repeated."
)
@click.option("--all-topics", is_flag=True, help="All partitions with committed offsets.")
@click.option("--to-earliest", is_flag=True, help="To the first offset.")
@click.option("--to-latest", is_flag=True, help="To the end.")
@click.option("--to-current", is_flag=True, help="To the committed offset, or the end where there is none.")
@click.option("--to-offset", type=OFFSET, metavar="N", help="To this offset.")
@click.option("--shift-by", type=int, metavar="N", help="Forward, or with -N back, from the committed offset.")
@click.option("--to-datetime", type=time_ms, metavar="TIME", help="To the first record since then: ISO 8601, or ms.")
@click.option("--by-duration", type=duration_ms, metavar="PnDTnHnMnS", help="To the first record since that long ago.")
@click.option(
    "--from-file", type=click.File("rb"), metavar="FILE", help="To the offsets of a CSV file, as of --export."
)
@click.option("--execute", is_flag=True, help="Commit the offsets.")
@click.option("--dry-run", is_flag=True, help="Only show the offsets; the default.")
@click.option("--export", is_flag=True, help="Print [GROUP,]TOPIC,PARTITION,OFFSET, as CSV.")
@table_options
@cluster_options
@click.pass_context
def reset(
    ctx: click.Context,
    /,
    *,
    selection: GroupSelection,
    topics: Sequence[str],
    all_topics: bool,
    execute: bool,
    dry_run: bool,
    export: bool,
    as_json: bool,
    **goals: Any,
) -> None:
    """Set committed offsets of groups without members; without --execute only show them.

    The group reads on from these offsets when its members start again. A group that does not exist is created.
    """
    goal = _goal(goals)
    file = goals["from_file"]
    if execute and dry_run:
        raise click.UsageError("--execute and --dry-run exclude each other")
    if export and as_json:
        raise click.UsageError("--export and --json exclude each other")
    if file is not None and (topics or all_topics):
        raise click.UsageError("--from-file names the partitions: give no --topic or --all-topics beside it")
    if file is None and bool(topics) == all_topics:
        raise click.UsageError("say which partitions: --topic TOPIC[:N,…], which may be repeated, or --all-topics")
    for text in topics:
        topic_and_partitions(text)
    scope = _Scope(selection=selection, topics=tuple(topics), file=file)

    async def work(client: Admin) -> tuple[list[_Reset], dict[str, OdradekError]]:
        resets, errors = await _plan(client, scope, goal)
        return (await _execute(client, resets, errors) if execute else resets), errors

    resets, errors = with_admin(work)
    if export:
        _export(resets, is_single=len(selection.names) == 1)
    else:
        _print(resets, executed=execute, as_json=as_json)
    if resets and not execute:
        click.echo("dry run: nothing was changed; add --execute to commit these offsets", err=True)
    report(ctx, errors)


def _goal(options: Mapping[str, Any]) -> Goal:
    """Return the only goal among the options. Raises `click.UsageError` for none or several."""
    given = [Goal(name, value) for name, value in options.items() if value is not None and value is not False]
    if len(given) != 1:
        names = ", ".join(f"--{name.replace('_', '-')}" for name in options)
        raise click.UsageError(f"give exactly one of {names}")
    return given[0]


# ---- the plan -------------------------------------------------------------------------------------------------------


async def _plan(client: Admin, scope: _Scope, goal: Goal) -> tuple[list[_Reset], dict[str, OdradekError]]:
    """Return the offsets to commit, and by group id the errors of groups that cannot be reset."""
    plan: list[PlannedOffset] = []
    if scope.file is not None:
        plan = read_plan(scope.file, None if scope.selection.is_all else scope.selection.names)
        await _check_partitions(client, scope.file, plan)
    if scope.file is not None and scope.selection.is_all:
        group_ids = list(dict.fromkeys(each.group for each in plan))
    else:
        group_ids = await scope.selection.group_ids(client)
    named = await partitions_of_topics(client, scope.topics)
    resets: list[_Reset] = []
    errors: dict[str, OdradekError] = {}
    for group_id, group in (await client.describe_groups(group_ids)).items():
        refused = refusal(group_id, group)
        if refused is not None:
            errors[group_id] = refused
            continue
        if isinstance(group, KafkaError):
            say(f"odradek: group {group_id!r} does not exist; --execute creates it", is_remark=True)
        committed = {} if isinstance(group, KafkaError) else _committed(group, warn=not (named or plan))
        if plan:
            goals = {each.partition: Goal("to_offset", each.offset) for each in plan if each.group == group_id}
        else:
            goals = dict.fromkeys(named or committed, goal)
        if goals:
            resets.append(_Reset(group_id, committed, goals))
        else:
            errors[group_id] = _nothing_to_reset(group_id, scope)
    await _look_up_offsets(client, resets, goal, errors)
    return [each for each in resets if each.group_id not in errors], errors


async def _check_partitions(client: Admin, file: IO[bytes], plan: Iterable[PlannedOffset]) -> None:
    """Raise `KafkaError`, which names the line, for the first partition that does not exist."""
    try:
        await replicas_of(client, {each.partition for each in plan})
    except KafkaError:
        for each in plan:
            try:
                await replicas_of(client, [each.partition])
            except KafkaError as error:
                raise KafkaError(error.code, f"{getattr(file, 'name', 'stdin')}: line {each.line}: {error}") from None


def _committed(group: GroupDescription, *, warn: bool) -> dict[TopicPartition, int]:
    """Return the committed offsets of partitions that have an end offset; `warn` names the others on stderr."""
    committed: dict[TopicPartition, int] = {}
    for each in group.partitions:
        partition = TopicPartition(each.topic, each.partition)
        if each.committed_offset is not None and each.end_offset is not None:
            committed[partition] = each.committed_offset
        elif each.committed_offset is not None and warn:
            say(f"odradek: {partition} has no leader or does not exist, and is left out", is_remark=True)
    return committed


def _nothing_to_reset(group_id: str, scope: _Scope) -> KafkaError:
    if scope.file is not None:
        reason = (
            f"group {group_id!r} has no line in {getattr(scope.file, 'name', 'stdin')}; add one, or leave the group out"
        )
    else:
        reason = f"group {group_id!r} has no committed offsets, or does not exist; name topics with --topic"
    return KafkaError(ErrorCode.group_id_not_found, reason)


async def _look_up_offsets(
    client: Admin, resets: Iterable[_Reset], goal: Goal, errors: dict[str, OdradekError]
) -> None:
    """Set `offsets` of the resets; add to `errors` each group with a partition that has no new offset."""
    known = await partition_offsets(client, {partition for each in resets for partition in each.goals}, goal)
    for each in resets:
        for partition, own_goal in sorted(each.goals.items()):
            try:
                each.offsets[partition], remark = new_offset(own_goal, each.committed.get(partition), known[partition])
            except ValueError as error:
                reason = f"group {each.group_id!r}: {partition} {error}; give --to-earliest, --to-latest or --to-offset"
                errors[each.group_id] = KafkaError(ErrorCode.invalid_request, reason)
                break
            if remark:
                say(f"odradek: {partition} {remark}", is_remark=True)


async def _execute(client: Admin, resets: Iterable[_Reset], errors: dict[str, OdradekError]) -> list[_Reset]:
    """Commit the offsets; return the resets that succeeded, and add the errors of the others.

    After a group whose coordinator cannot be reached, the others are not tried, because each would take as long.
    """
    done = []
    is_unreachable = False
    for each in resets:
        if is_unreachable:
            errors[each.group_id] = UnavailableError(f"group {each.group_id!r} was not tried after this error")
            continue
        offsets = {partition: OffsetAndMetadata(offset) for partition, offset in each.offsets.items()}
        try:
            await client.alter_group_offsets(each.group_id, offsets)
            done.append(each)
        except KafkaError as error:
            errors[each.group_id] = error
        except UnavailableError as error:
            errors[each.group_id] = UnavailableError(f"group {each.group_id!r}: {error}")
            is_unreachable = True
    return done


# ---- output ---------------------------------------------------------------------------------------------------------


def _print(resets: Iterable[_Reset], *, executed: bool, as_json: bool) -> None:
    rows = [
        (each.group_id, *partition, each.committed.get(partition), offset)
        for each in resets
        for partition, offset in each.offsets.items()
    ]
    if not as_json:
        if rows:
            print_table(("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "NEW-OFFSET"), rows)
        return
    names = ("group_id", "topic", "partition", "committed_offset", "new_offset")
    for row in rows:
        print_json({**dict(zip(names, row, strict=True)), "executed": executed})


def _export(resets: Iterable[_Reset], *, is_single: bool) -> None:
    """Print the offsets as CSV, as Kafka's tool does: without the group if only one was named."""
    shown = several_lines if sys.stdout.isatty() else str
    for each in resets:
        for partition, offset in each.offsets.items():
            line = csv_line((*partition, offset) if is_single else (each.group_id, *partition, offset))
            sys.stdout.write(shown(line))  # click.echo would take escape sequences out of names
