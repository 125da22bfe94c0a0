"""The benchmark of one client beside a crowd of connections, with real processes and a small crowd."""

import json

import pytest
from click.testing import CliRunner

from odradek.cli import main

pytestmark = pytest.mark.long

pytest.importorskip("confluent_kafka")


def test_a_client_is_measured_alone_and_beside_connections_that_pipeline_requests():
    wanted = ["--rounds", "1", "--seconds", "0.5", "--connections", "60", "--requests", "20", "--json"]
    result = CliRunner().invoke(main, ["bench", "crowd", *wanted], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(row["what"], row["aim"]) for row in rows] == [("one client's p50", "≤ 5"), ("one client's p99", "≤ 5")]
    assert all(row["alone"] > 0 and row["in the crowd"] > 0 for row in rows)
