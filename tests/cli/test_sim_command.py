"""`odradek sim` prints the verdict of seeds, and exits with 1 if a check finds something."""

import json
import logging
from collections.abc import Iterator

import msgspec
import pytest
from click.testing import CliRunner

from odradek.cli import sim


@pytest.fixture(autouse=True)
def _logging_again() -> Iterator[None]:
    yield
    logging.disable(logging.NOTSET)


def test_a_seed_without_a_finding_prints_its_trace_and_speed() -> None:
    result = CliRunner().invoke(sim.command, ["--seed", "5"])
    assert result.exit_code == 0, result.output
    assert result.output.startswith("seed 5: no finding, trace ")
    assert "seeds/s" in result.output


def test_a_finding_is_printed_with_its_faults_and_the_exit_code_is_1(monkeypatch: pytest.MonkeyPatch) -> None:
    played = sim.run_seed(sim.SeedPlan(seed=5, count=2))
    monkeypatch.setattr(sim, "run_seed", lambda plan: msgspec.structs.replace(played, findings=["lost in t-0"]))
    result = CliRunner().invoke(sim.command, ["--seed", "5"])
    assert result.exit_code == 1
    for expected in ("seed 5: FAILED", "findings:\n  lost in t-0\n", f"faults:\n  {played.deeds[0]}\n", "last events:"):
        assert expected in result.output


def test_json_has_the_whole_result() -> None:
    result = CliRunner().invoke(sim.command, ["--seed", "5", "--json"])
    assert json.loads(result.output)["plan"]["seed"] == 5
