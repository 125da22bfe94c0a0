"""docs/spark.md and docs/consumption.md: their examples run as they are printed, and the tables have every key."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.pipelines.config.parsing import parse_pipeline
from odradek.pipelines.config.pipelines import (
    MirrorPipeline,
    QueryPipeline,
    Restart,
    Sink,
    Source,
    Stream,
    Target,
    Trigger,
)
from odradek.pipelines.queries import check_pipeline
from odradek.pipelines.runner import run_pipelines
from odradek.pipelines.status import State
from odradek.testing.servers.odradek_process import ServedBroker
from tests.docs.fenced_blocks import blocks

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = (ROOT / "docs" / "spark.md").read_text()

pytestmark = [pytest.mark.timeout(300)]


def test_the_tables_have_every_key_of_a_file():
    tables = (QueryPipeline, MirrorPipeline, Source, Trigger, Restart, Stream, Sink, Target)
    names = {"restart", "sink", "source", "streams", "target", "trigger"}
    keys = {key for table in tables for key in table.__struct_encode_fields__ if key.islower()} - names
    assert len(keys) > 35
    rows = "\n".join(line for line in PAGE.splitlines() if line.startswith("| `"))
    assert [key for key in sorted(keys) if not re.search(rf"[`.]{key}`", rows)] == []


@pytest.mark.needs("java")
@pytest.mark.parametrize(
    "text",
    [*blocks("spark.md", "toml"), *blocks("consumption.md", "toml")],
    ids=lambda text: tomllib.loads(text)["checkpoint"],
)
def test_spark_accepts_every_example(spark: Any, tmp_path: Path, text: str):
    (tmp_path / "alerts.py").write_text(blocks("spark.md", "python")[1])
    parcel = {"type": "record", "name": "Parcel", "fields": [{"name": "city", "type": "string"}]}
    (tmp_path / "parcel.avsc").write_text(json.dumps(parcel))
    values = tomllib.loads(text)
    assert "check" not in values
    columns = check_pipeline(spark, parse_pipeline(values, directory=tmp_path, default_name="prices"))
    assert (columns is None) is (values["kind"] == "mirror")


@pytest.mark.needs("java")
def test_the_first_example_and_the_first_pipeline_run(
    spark: Any, source: ServedBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    example, address = blocks("spark.md", "python")[0], source.bootstrap_servers
    assert len(example.strip().splitlines()) <= 12
    exec(compile(example.replace("localhost:9092", address), "docs/spark.md", "exec"), {})
    assert re.search(r"\|Bonn\| +7\|", capsys.readouterr().out)
    text = blocks("spark.md", "toml")[0].replace("localhost:9092", address)
    values = tomllib.loads(text) | {"trigger": {"available_now": True}}
    pipeline = parse_pipeline(values, directory=tmp_path, default_name="prices")
    assert not isinstance(pipeline, MirrorPipeline)
    (status,) = run_pipelines(spark, [pipeline])
    assert (status.state, status.figures.records_in, status.figures.bad_rows) == (State.DONE, 2, 0)


def test_the_readme_leads_here():
    readme = (ROOT / "README.md").read_text()
    assert "docs/spark.md" in "\n".join(readme.splitlines()[:20])
