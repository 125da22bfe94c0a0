"""`odradek spark`: settings for sessions of Spark that users build themselves."""

import click

from odradek.cli import CommandGroup
from odradek.cli.common import say

_PYTHON_ON_PATH = "odradek-python"
_WHERE = {
    "local": "driver and workers on this machine",
    "standalone": "a cluster whose machines have this Python at the same path",
    "yarn": "nodes with a Python that has Odradek with its extra `spark`, first on their PATH",
    "kubernetes": "an image with a Python that has Odradek with its extra `spark`, first on its PATH",
    "connect": "the server of Spark Connect, on a machine that has this Python at the same path",
}


@click.group(cls=CommandGroup)
def command() -> None:
    """Set up Spark sessions that are not started by Odradek."""


@command.command()
@click.argument("where", type=click.Choice(list(_WHERE)), default="local")
def conf(where: str) -> None:
    """Print settings with which a session reads and writes as fast as `local_session` and `odradek pipeline`.

    WHERE is local, standalone, yarn, kubernetes or connect. The output is for conf/spark-defaults.conf, or for --conf
    of spark-submit and start-connect-server.sh. Settings of your own win if they come later.
    """
    from odradek.spark.local.worker_python import cluster_python
    from odradek.spark.session import settings_for_other_sessions

    python = _PYTHON_ON_PATH if where in ("yarn", "kubernetes") else cluster_python()
    say(f"# For {_WHERE[where]}.")
    say(f"# A driver that is started as `python FILE` reads the environment instead: PYSPARK_PYTHON={python}")
    for key, value in {
        "spark.pyspark.python": python,
        **settings_for_other_sessions(is_local=where == "local"),
    }.items():
        say(f"{key} {value}")
