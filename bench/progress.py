"""Prints the progress of a long benchmark."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Yield a function that prints progress on stderr: as a status line, or as lines if that is not a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: click.echo(text, err=True)
        return
    with console.status("starting") as status:
        yield status.update
