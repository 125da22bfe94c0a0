"""`odradek bench`: the benchmarks in the folder `bench/` of a source tree, which an installed package lacks."""

import importlib
import sys
from pathlib import Path

import click

from odradek.model import UnavailableError

SOURCE_TREE = Path(__file__).resolve().parents[3]


@click.command(add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def _unavailable() -> None:
    """Refuse, and name the command that runs the benchmarks."""
    raise UnavailableError(
        "the benchmarks are not part of an installed package: run `make bench` in a source tree of Odradek"
    )


def load(source_tree: Path) -> click.Command:
    """Return the benchmarks of a source tree, or, without them, a command that fails and says how to run them."""
    if not (source_tree / "bench" / "commands.py").is_file():
        return _unavailable
    if str(source_tree) not in sys.path:
        sys.path.insert(0, str(source_tree))
    benchmarks: click.Command = importlib.import_module("bench").command
    return benchmarks


command = load(SOURCE_TREE)
