"""The options `--picture` and `--timeline` of `odradek lab`, and the writing of their files."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from odradek.cli.common import say

if TYPE_CHECKING:
    from odradek.lab.pictures import Chart

F = TypeVar("F", bound=Callable[..., Any])


def picture_option(function: F) -> F:
    return _file_option("--picture", "Also draw a picture.")(function)


def timeline_option(function: F) -> F:
    return _file_option("--timeline", "Also draw who owned what over time, in each generation.")(function)


def _file_option(name: str, text: str) -> Callable[[F], F]:
    return click.option(name, metavar="FILE.svg", callback=_checked, help=text)


def _checked(_context: click.Context, _parameter: click.Parameter, file: str | None) -> str | None:
    """Check that the file can be drawn, before the command's work, which may take minutes."""
    if file is not None:
        from odradek.lab.pictures import check_file

        check_file(file)
    return file


def write_picture(file: str | None, chart: Callable[[], "Chart"]) -> None:
    """Write a chart to `file` unless it is None; on stderr, print what the picture leaves out."""
    if file is None:
        return
    from odradek.lab.pictures import picture

    made = chart()
    Path(file).write_bytes(picture(made))
    if made.notice:
        say(f"{file}: {made.notice}", is_remark=True)
