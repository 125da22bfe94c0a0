"""What a long benchmark says while it runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console


@contextmanager
def progress() -> Iterator[Callable[[str], None]]:
    """A line on stderr that says what goes on; where stderr is no terminal, one for each thing."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: click.echo(text, err=True)
        return
    with console.status("starting") as status:
        yield status.update
