"""The progress of a long benchmark."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """Yield a function that reports progress on stderr: in one status line, or in lines without a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: click.echo(text, err=True)
        return
    with console.status("starting") as status:
        yield status.update
