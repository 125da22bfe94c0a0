"""`odradek pipeline`: `run` starts Spark jobs from TOML files, `views` has check, list, status and example."""

import click

from odradek.cli import CommandGroup
from odradek.cli.pipeline.run import run
from odradek.cli.pipeline.views import check, example, list_pipelines, status


@click.group(name="pipeline", cls=CommandGroup)
def command() -> None:
    """Run Spark pipelines from TOML files."""


for each in (run, check, list_pipelines, status, example):
    command.add_command(each)

__all__ = ["command"]
