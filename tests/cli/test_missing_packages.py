"""Without the packages of an extra, what needs one names it."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from odradek import cli

pytestmark = pytest.mark.long

PACKAGES: Final = ("fastavro", "google.protobuf", "kazoo", "pyarrow", "pyspark")
PAGE: Final = ("jinja2", "starlette", "uvicorn")
COMMANDS: Final = (["page"], ["serve", "--page"], ["up", "--page"])
PROGRAM: Final = f"""
import sys
from functools import partial

sys.modules |= dict.fromkeys({PACKAGES})  # an import of one of these raises ModuleNotFoundError

from odradek.values.value_formats import shower
from odradek.clients.blocking import Consumer, Producer, SimpleConsumer
from odradek.model import OdradekError
from odradek.spark.session import local_session
from odradek.stores import open_reader
from odradek.testing import Cluster

with Cluster() as kafka:
    kafka.create_topic("t")
    with (
        Producer(kafka.bootstrap_servers) as producer,
        SimpleConsumer(kafka.bootstrap_servers) as simple,
        Consumer("t", bootstrap_servers=kafka.bootstrap_servers) as consumer,
    ):
        for call in (
            partial(producer.send_arrow, {{}}, "t"),
            partial(simple.read_arrow, ("t", 0), 0),
            partial(simple.fetch_arrow, ("t", 0), 0),
            partial(consumer.poll_arrow, 0),
            local_session,
            partial(open_reader, "zookeeper://localhost:1", None),
            partial(shower, "confluent-avro", "f.avsc", option="value"),
            partial(shower, "protobuf", "f.desc:F", option="key"),
        ):
            try:
                call()
            except OdradekError as error:
                print(error)
"""


def test_a_call_names_the_extra_of_the_package_that_is_missing() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    arrow = "Arrow columns need pyarrow, which is not installed: pip install 'odradek[arrow]'"
    assert done.stdout.splitlines() == [
        *[arrow] * 4,
        "Spark sessions need pyspark, which is not installed: pip install 'odradek[spark]'",
        "trees in ZooKeeper need kazoo, which is not installed: pip install 'odradek[zookeeper]'",
        "Avro and Protobuf values need pyarrow, which is not installed: pip install 'odradek[avro]'",
        "Avro and Protobuf values need pyarrow, which is not installed: pip install 'odradek[protobuf]'",
    ]


@pytest.mark.parametrize(("package", "command"), list(zip(PAGE, COMMANDS, strict=True)))
def test_a_page_names_the_extra_of_the_package_that_is_missing(package: str, command: list[str]) -> None:
    code = f"import sys; sys.modules[{package!r}] = None; from odradek.cli import main; main({command})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stderr == f"odradek: pages need {package}, which is not installed: pip install 'odradek[page]'\n"


def test_an_installed_package_does_not_list_the_benchmarks_of_the_source_tree(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    listed = CliRunner().invoke(cli.main, ["--help"]).output
    monkeypatch.setattr(cli, "_BENCHMARKS", tmp_path / "commands.py")
    installed = CliRunner().invoke(cli.main, ["--help"]).output
    assert "\n  bench " in listed
    assert [line for line in listed.splitlines() if not line.startswith("  bench ")] == installed.splitlines()
