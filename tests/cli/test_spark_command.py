"""`odradek spark conf`."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.cli import main
from odradek.cli.spark import _WHERE


@pytest.mark.parametrize("where", _WHERE)
def test_the_printed_settings_are_a_file_of_properties(where: str) -> None:
    printed = CliRunner().invoke(main, ["spark", "conf", where], catch_exceptions=False)
    assert printed.exit_code == 0
    lines = [line.split() for line in printed.output.splitlines() if not line.startswith("#")]
    assert all(len(line) == 2 for line in lines)
    settings = dict(lines)
    assert settings["spark.python.daemon.module"] == "odradek.spark.worker_daemon"
    assert ("spark.sql.streaming.checkpointFileManagerClass" in settings) == (where == "local")
    python = settings["spark.pyspark.python"]
    assert python == "odradek-python" if where in ("yarn", "kubernetes") else Path(python).is_absolute()


def test_an_unknown_place_is_refused_with_the_known_ones() -> None:
    refused = CliRunner().invoke(main, ["spark", "conf", "mesos"])
    assert refused.exit_code == 2
    assert "'mesos' is not one of 'local', 'standalone', 'yarn', 'kubernetes', 'connect'" in refused.output
