"""Names of topics and groups that the cluster has: those that match a wildcard, and those that the shell completes."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from fnmatch import fnmatchcase
from typing import Final

import click

from odradek.cli.common import admin
from odradek.clients import Admin
from odradek.model import ErrorCode, KafkaError, OdradekError

_COMPLETION_S: Final = 1.5
"""Limit of the wait of a shell for the names."""
_NO_SUCH: Final = {"topic": ErrorCode.unknown_topic_or_partition, "group": ErrorCode.group_id_not_found}


async def matching(
    kind: str, names: Sequence[str], existing: Callable[[], Awaitable[list[str]]], *, may_be_none: bool = False
) -> list[str]:
    """Return `names`, each once, and instead of one with `*` or `?` those of `existing` that match it.

    A name that exists is not taken as a wildcard. Raises `KafkaError` for a wildcard that nothing matches, unless
    there `may_be_none`.
    """
    found: dict[str, None] = {}
    known: list[str] | None = None
    for name in names:
        matches = [name]
        if set(name) & {"*", "?"}:
            known = await existing() if known is None else known
            matches = (
                [name] if name in known else [each for each in known if fnmatchcase(each, name.replace("[", "[[]"))]
            )
            if not matches and not may_be_none:
                raise KafkaError(_NO_SUCH[kind], f"no {kind} matches {name!r}")
        found |= dict.fromkeys(matches)
    return list(found)


async def topics_of_names(client: Admin, names: Sequence[str], *, may_be_none: bool = False) -> list[str]:
    """Return topics by name or wildcard; a wildcard matches no internal topic."""
    return await matching("topic", names, lambda: _topics(client), may_be_none=may_be_none)


async def _topics(client: Admin) -> list[str]:
    return [topic.name for topic in await client.list_topics()]


async def group_ids(client: Admin) -> list[str]:
    return [group.group_id for group in await client.list_groups()]


def complete_topics(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the topics that begin with `incomplete`, for a shell."""
    return _complete(ctx, incomplete, _topics)


def complete_groups(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Return the groups that begin with `incomplete`, for a shell."""
    return _complete(ctx, incomplete, group_ids)


def _complete(ctx: click.Context, incomplete: str, existing: Callable[[Admin], Awaitable[list[str]]]) -> list[str]:
    """Return names from the cluster of the command line; none if it does not answer soon."""

    async def work() -> list[str]:
        async with asyncio.timeout(_COMPLETION_S), admin() as client:
            return await existing(client)

    logging.disable()
    try:
        with ctx.scope(cleanup=False):
            return [name for name in asyncio.run(work()) if name.startswith(incomplete)]
    except (OdradekError, OSError):
        return []
    finally:
        logging.disable(logging.NOTSET)
