"""`odradek partitions reassign`: move partitions to other replicas, by Kafka's JSON file or by flags."""

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Final

import click
from msgspec import Struct

from odradek.broker.controller.machine.reassignment_proposals import generate_assignment
from odradek.cli.checks import BYTES, ID
from odradek.cli.common import cluster_options, print_json, print_table, progress, say, table_options, with_admin
from odradek.cli.partition_lists import (
    TOPICS,
    Assignment,
    AssignmentFile,
    assignment_json,
    broker_list,
    ids,
    partitions_of,
    partitions_of_topics,
    read_assignment,
    replicas_of,
    topic_and_partitions,
)
from odradek.cli.partitions.throttle import remove_throttle, set_log_dirs_throttle, set_throttle
from odradek.clients import Admin
from odradek.clients.admin.moves import list_moves
from odradek.clients.admin.reassignments import PartitionReassignment
from odradek.clients.admin.results import RefusedPartitionsError
from odradek.model import ErrorCode, KafkaError, TopicPartition, first_names

_POLL_S: Final = 0.5
_MIB: Final = 1024 * 1024
_MODES: Final = ("generate", "list", "verify", "cancel")


class _Options(Struct, frozen=True, kw_only=True):
    """The checked options: one mode, and one way to name partitions."""

    topics: Sequence[str]
    numbers: Sequence[int]
    replicas: tuple[int, ...] | None
    brokers: tuple[int, ...] | None
    is_all: bool
    wait: bool
    any_factor: bool
    throttle: int | None
    log_dirs_throttle: int | None
    as_json: bool
    file: AssignmentFile | None

    def targets(self) -> Assignment:
        """Return the requested replicas. Raises `click.UsageError` if the options do not give any."""
        if self.file is not None:
            return self.file.replicas
        topic, own = topic_and_partitions(self.topics[0]) if len(self.topics) == 1 else ("", None)
        if not (own or self.numbers) or self.replicas is None:
            raise click.UsageError("no partitions named: give --file, or one --topic TOPIC:N,… and --replicas")
        return {TopicPartition(topic, number): self.replicas for number in sorted({*(own or self.numbers)})}


@click.command()
@click.option("--file", "-f", type=click.File("rb"), help="Kafka's JSON of partitions and replicas; - is stdin.")
@click.option("--topic", "-t", "topics", multiple=True, type=TOPICS, help="Without --file: the topic or partitions.")
@click.option("--partition", "-p", "numbers", multiple=True, type=ID, help="Without --file: the partition.")
@click.option(
    "--replicas",
    "-r",
    type=broker_list,
    metavar="ID,ID…",
    help="The new replicas, the preferred leader first, such as 1,2,3.",
)
@click.option(
    "--throttle", type=BYTES, metavar="BYTES", help="Copy at most so many bytes per second from and to each broker."
)
@click.option(
    "--replica-alter-log-dirs-throttle",
    "log_dirs_throttle",
    type=BYTES,
    metavar="BYTES",
    help="Copy at most so many bytes per second between the directories of each broker.",
)
@click.option("--wait", is_flag=True, help="Wait until the new replicas are in sync and the old ones gone.")
@click.option("--disallow-replication-factor-change", is_flag=True, help="Refuse to change the number of replicas.")
@click.option("--list", "list_", is_flag=True, help="Only list the reassignments in progress.")
@click.option("--verify", is_flag=True, help="Only show the progress; exits with 0 when all is done.")
@click.option("--cancel", is_flag=True, help="Cancel the reassignments in progress of --topic, --file or --all.")
@click.option("--all", "is_all", is_flag=True, help="With --cancel: all partitions.")
@click.option("--generate", is_flag=True, help="Only print a plan for --file that spreads --topic over brokers.")
@click.option(
    "--broker-list",
    "brokers",
    type=broker_list,
    metavar="ID,ID…",
    help="With --generate: the brokers.  [default: all live ones]",
)
@table_options
@cluster_options
@click.pass_context
def reassign(
    ctx: click.Context,
    *,
    file: IO[bytes] | None,
    topics: Sequence[str],
    numbers: Sequence[int],
    replicas: tuple[int, ...] | None,
    throttle: int | None,
    log_dirs_throttle: int | None,
    wait: bool,
    disallow_replication_factor_change: bool,
    is_all: bool,
    brokers: tuple[int, ...] | None,
    as_json: bool,
    list_: bool,
    verify: bool,
    cancel: bool,
    generate: bool,
) -> None:
    """Move partitions to other replicas, without interrupting clients.

    The new replicas copy the records before the old ones are removed. The current replicas are printed to stderr as
    JSON, from which --file can restore them. A throttle is removed by --wait, or by --verify when all is done.
    """
    modes = [mode for mode, wanted in zip(_MODES, (generate, list_, verify, cancel), strict=True) if wanted]
    is_throttled = throttle is not None or log_dirs_throttle is not None
    _check(modes, file, topics, numbers, replicas, brokers, is_all=is_all, wait=wait, is_throttled=is_throttled)
    options = _Options(
        topics=topics,
        numbers=numbers,
        replicas=replicas,
        brokers=brokers,
        is_all=is_all,
        wait=wait,
        any_factor=not disallow_replication_factor_change,
        throttle=throttle,
        log_dirs_throttle=log_dirs_throttle,
        as_json=as_json,
        file=None if file is None else read_assignment(file),
    )
    if not modes or verify:
        options.targets()
    work = {"generate": _generate, "list": _list, "verify": _verify, "cancel": _cancel}[modes[0]] if modes else _execute

    if not with_admin(lambda client: work(client, options)):
        ctx.exit(1)


def _check(
    modes: Sequence[str],
    file: IO[bytes] | None,
    topics: Sequence[str],
    numbers: Sequence[int],
    replicas: tuple[int, ...] | None,
    brokers: tuple[int, ...] | None,
    *,
    is_all: bool,
    wait: bool,
    is_throttled: bool,
) -> None:
    """Raise `click.UsageError` for options that exclude each other."""
    mode = modes[0] if modes else None
    problem = None
    if len(modes) > 1:
        problem = f"--{modes[0]} and --{modes[1]} exclude each other"
    elif file is not None and (topics or numbers or replicas):
        problem = "--file says it all: no --topic, --partition or --replicas beside it"
    elif numbers and (not topics or any(":" in topic for topic in topics)):
        problem = "--partition needs its --topic, without partitions of its own"
    elif replicas is not None and mode not in (None, "verify"):
        problem = f"--replicas has no meaning with --{mode}"
    elif brokers is not None and mode != "generate":
        problem = "--broker-list goes with --generate; --replicas says where a partition shall be"
    elif is_all and (mode != "cancel" or topics or file):
        problem = "--all goes with --cancel, and stands alone"
    elif is_throttled and mode is not None:
        problem = f"a throttle has no meaning with --{mode}"
    elif wait and mode not in (None, "cancel"):
        problem = f"--wait has no meaning with --{mode}"
    elif mode == "generate" and (not topics or numbers or file):
        problem = "--generate plans for whole topics: --topic, which may be repeated"
    elif mode == "cancel" and not (topics or file or is_all):
        problem = "which reassignments are to be given up: --topic (and --partition), --file, or --all"
    if problem is not None:
        raise click.UsageError(problem)


async def _execute(client: Admin, options: _Options) -> bool:
    targets = options.targets()
    if options.file is not None:
        await options.file.check_directories(client)
    before = await replicas_of(client, targets)
    click.echo(assignment_json(before), err=True)
    errors: Mapping[TopicPartition, KafkaError] = {}
    if options.throttle is not None:
        await set_throttle(client, before, targets, options.throttle)
    if options.log_dirs_throttle is not None:
        await set_log_dirs_throttle(client, targets, options.log_dirs_throttle)
    if options.file is not None:
        await options.file.move_directories(client)
    try:
        await client.alter_partition_reassignments(targets, allow_replication_factor_change=options.any_factor)
    except RefusedPartitionsError as error:
        errors = error.errors
    _print_begun({key: (before[key], target) for key, target in targets.items() if key not in errors}, options)
    _print_errors(errors)
    begun = targets.keys() - errors.keys()
    if options.wait or not begun:
        await _wait(client, begun, options, options.file)
        await _remove_throttle(client, targets)
    elif options.throttle is not None or options.log_dirs_throttle is not None:
        say("odradek: --verify removes the throttle when all is done", is_remark=True)
    return not errors


async def _remove_throttle(client: Admin, keys: Iterable[TopicPartition]) -> None:
    if removed := await remove_throttle(client, keys):
        say(f"odradek: removed the throttle of {', '.join(removed)}", is_remark=True)


async def _generate(client: Admin, options: _Options) -> bool:
    cluster = await client.describe_cluster()
    alive = {broker.broker_id: broker.rack for broker in cluster.brokers}
    chosen = options.brokers or tuple(alive)
    if absent := [broker for broker in chosen if broker not in alive]:
        there = ", ".join(map(str, alive))
        raise KafkaError(ErrorCode.broker_not_available, f"broker {absent[0]} is not available; live brokers: {there}")
    assigned = {
        TopicPartition(topic.name, number): each.replicas
        for topic in await client.list_topics(include_internal=True)
        for number, each in topic.partitions.items()
    }
    before = await replicas_of(client, await partitions_of(client, options.topics, ()))
    for key, replicas in before.items():
        if len(replicas) > len(chosen):
            message = f"{key.topic}-{key.partition} has {len(replicas)} replicas, and there are {len(chosen)} brokers"
            raise KafkaError(ErrorCode.invalid_replication_factor, message)
    topics = {name: {key: some for key, some in before.items() if key.topic == name} for name in options.topics}
    plan = generate_assignment(assigned | dict(before), topics, {broker: alive[broker] for broker in chosen})
    click.echo(assignment_json(before), err=True)
    click.echo(assignment_json(plan))
    return True


async def _list(client: Admin, options: _Options) -> bool:
    found = await client.list_partition_reassignments(await _named(client, options))
    if options.as_json:
        for key, each in found.items():
            print_json({"topic": key.topic, "partition": key.partition, **_progress_object(each)})
    elif found:
        rows = [
            (*key, ids(each.replicas), ids(each.adding_replicas), ids(each.removing_replicas))
            for key, each in found.items()
        ]
        print_table(("TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING"), rows)
    else:
        click.echo("no partition is being reassigned")
    return True


async def _verify(client: Admin, options: _Options) -> bool:
    targets = options.targets()
    if options.file is not None:
        await options.file.check_directories(client)
    moving = await client.list_partition_reassignments(targets)
    now = await replicas_of(client, targets)
    states = {
        key: "in progress" if key in moving else "done" if now[key] == target else "not begun"
        for key, target in targets.items()
    }
    for key in await options.file.misplaced(client) if options.file is not None else ():
        if states[key] == "done":
            states[key] = "in another directory"
    for key, each in moving.items():
        if each.target != targets[key]:
            states[key] = f"in progress, but to {ids(each.target)}"
    if options.as_json:
        for key, state in states.items():
            where = {"replicas": now[key], "target_replicas": targets[key]}
            print_json({"topic": key.topic, "partition": key.partition, **where, "state": state})
    else:
        rows = [(*key, ids(now[key]), ids(targets[key]), state) for key, state in states.items()]
        print_table(("TOPIC", "PARTITION", "REPLICAS", "TARGET", "STATE"), rows)
    is_done = all(state == "done" for state in states.values())
    if is_done:
        await _remove_throttle(client, targets)
    return is_done


async def _cancel(client: Admin, options: _Options) -> bool:
    moving = await client.list_partition_reassignments(await _named(client, options))
    if not moving:
        click.echo("none of these partitions is being reassigned", err=True)
        return True
    errors: Mapping[TopicPartition, KafkaError] = {}
    try:
        await client.alter_partition_reassignments(dict.fromkeys(moving))
    except RefusedPartitionsError as error:
        errors = {key: each for key, each in error.errors.items() if each.code != ErrorCode.no_reassignment_in_progress}
    back = {
        key: (each.target, tuple(sorted(set(each.replicas) - set(each.adding_replicas))))
        for key, each in moving.items()
        if key not in errors
    }
    _print_begun(back, options)
    _print_errors(errors)
    if options.wait:
        await _wait(client, back, options)
    await _remove_throttle(client, moving)
    return not errors


async def _named(client: Admin, options: _Options) -> list[TopicPartition] | None:
    """Return the partitions that the options name; None for all."""
    if options.file is not None:
        return list(options.file.replicas)
    return await partitions_of_topics(client, options.topics, options.numbers) if options.topics else None


async def _wait(
    client: Admin, keys: Iterable[TopicPartition], options: _Options, file: AssignmentFile | None = None
) -> None:
    """Return when no partition is reassigned any more, and replicas are in the directories of `file`."""
    left, copied = set(keys), 0
    shows = sys.stderr.isatty() and not options.as_json
    total = sum(each.total for each in await list_moves(client, left)) if shows else 0
    with progress("reassign", total // _MIB, unit="MiB", wanted=shows) as advance:
        while left:
            still = left & (await client.list_partition_reassignments(left)).keys()
            if file is not None and not still:
                misplaced = await file.misplaced(client)
                still = left & misplaced.keys()
                if ended := [key for key in sorted(still) if not misplaced[key]]:
                    what = f"{first_names(ended)} did not move to another directory"
                    raise KafkaError(ErrorCode.kafka_storage_error, f"{what}: the log of its broker has the reason")
            left = still
            if shows:
                moves = await list_moves(client, left) if left else []
                before, copied = copied, total - sum(each.left for each in moves)
                advance(copied // _MIB - before // _MIB)
            if left:
                await asyncio.sleep(_POLL_S)


def _print_begun(begun: Mapping[TopicPartition, tuple[tuple[int, ...], tuple[int, ...]]], options: _Options) -> None:
    if options.as_json:
        for key, (before, target) in begun.items():
            where = {"replicas": before, "target_replicas": target}
            print_json({"topic": key.topic, "partition": key.partition, **where})
    elif begun:
        rows = [(*key, ids(before), ids(target)) for key, (before, target) in begun.items()]
        print_table(("TOPIC", "PARTITION", "FROM", "TO"), rows)


def _print_errors(errors: Mapping[TopicPartition, KafkaError]) -> None:
    for error in errors.values():
        say(f"odradek: {error}", is_remark=True)


def _progress_object(each: PartitionReassignment) -> dict[str, object]:
    return {
        "replicas": each.replicas,
        "adding_replicas": each.adding_replicas,
        "removing_replicas": each.removing_replicas,
    }
