"""The parts that commands of `odradek lab` share if they simulate a cluster."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import click

from odradek.lab.costs import Generation

F = TypeVar("F", bound=Callable[..., Any])


@contextlib.contextmanager
def silent_brokers() -> Iterator[None]:
    """Log nothing: members that are removed and brokers that die are a simulation's subject, not a fault."""
    logger = logging.getLogger("odradek")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


def generation_option(function: F) -> F:
    """Add `--generation`; the command gets the `chosen` ones."""
    return click.option(
        "--generation",
        "chosen",
        type=click.Choice([each.key for each in Generation]),
        multiple=True,
        callback=_chosen,
        help="Of the generations 1, 2, 2 and 3; may be repeated; all by default.",
    )(function)


def _chosen(_context: click.Context, _parameter: click.Parameter, wanted: Sequence[str]) -> list[Generation]:
    return [each for each in Generation if not wanted or each.key in wanted]
