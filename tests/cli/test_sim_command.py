"""`odradek sim` prints the verdict of seeds, and exits with 1 if a check finds something."""

import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import odradek
from odradek.cli.sim import command, commands, seeds
from odradek.simulation import shrinking
from odradek.simulation.seed_run import SeedPlan, SeedResult
from odradek.simulation.workloads.catalogue import draw_workloads
from odradek.testing.conditions import eventually

pytestmark = pytest.mark.long


def _play(plan: SeedPlan) -> SeedResult:
    """Return a result at once: deeds 0 to 4, and a finding if deed 3 is played in an odd seed."""
    played = sorted({0, 1, 2, 3, 4} if plan.kept is None else plan.kept)
    return SeedResult(
        plan=plan,
        digest=f"{plan.seed}-{len(played)}",
        findings=["lost in t-0: b'1'"] * (3 in played and plan.seed % 2),
        deeds=[f"{number} 1.50 kill 1 0" for number in played],
        virtual_s=60.0,
        events=9,
        probes={"a": 1},
        trace=["    1.500000 s  broker-0 → broker-1: 30 B 0a0b0c0d", "    1.600000 s  task"],
    )


@pytest.fixture
def sim(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Result]]:
    """Return a function that runs the command in a temporary folder, with `_play` in place of clusters."""
    for module in (seeds, commands):
        monkeypatch.setattr(module, "run_seed", _play)
    monkeypatch.setattr(commands, "shrunk", lambda failed: shrinking.shrunk(failed, run=_play))
    monkeypatch.chdir(tmp_path)
    yield lambda *args: CliRunner().invoke(command, args)
    logging.disable(logging.NOTSET)


def test_a_seed_without_a_finding_prints_what_was_played_and_its_speed(sim: Any) -> None:
    result = sim("--seed", "4", "--workload", "records,unclean")
    assert result.exit_code == 0, result.output
    first, second, _, title, fault, *_, last = result.output.splitlines()
    assert first == "seed 4: no finding, 60.0 virtual s, trace 4-5"
    assert second == "workloads: records, unclean"
    assert (title, fault) == ("faults (number, virtual s, name, brokers):", "  0 1.50 kill 1 0")
    assert last.startswith("1 seed, 0 failed, 0.02 virtual h in ")
    assert f"workloads: {', '.join(draw_workloads(4))}\n" in sim("--seed", "4").output


def test_a_failure_is_shrunk_to_the_faults_that_it_takes_and_can_be_played_again(sim: Any) -> None:
    result = sim("--seeds", "4..5")
    assert result.exit_code == 1
    for expected in ("seed 5: FAILED", "1 of 5 faults are enough", "findings:\n  lost in t-0", "  3 1.50 kill 1 0\n"):
        assert expected in result.output
    assert "broker-1" in Path("sim-5.svg").read_text()
    again = sim("--replay", "sim-5.json")
    assert again.exit_code == 1
    assert "seed 5: FAILED, the same trace" in again.output


def test_json_has_a_line_for_each_seed(sim: Any) -> None:
    lines = sim("--seeds", "1..2", "--json").output.splitlines()
    assert [(each["plan"]["seed"], len(each["findings"])) for each in map(json.loads, lines)] == [(1, 1), (2, 0)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Give one of"),
        (["--seed", "1", "--seeds", "1..2"], "Give one of"),
        (["--replay", __file__, "--workers", "2"], "--replay plays what its file says"),
        (["--replay", __file__, "--output", "o"], "--replay plays what its file says"),
        (["--seed", "1", "--workers", "2", "--master", "local[2]"], "Give --workers or --master"),
        (["--seed", "1", "--conf", "a=b"], "--conf is for Spark"),
        (["--seeds", "5..1"], "'5..1' is not a range of seeds such as 0..199"),
        (["--seed", "1", "--faults", "kill,burn"], "'burn' is none of kill,"),
    ],
)
def test_wrong_arguments_are_refused_with_what_is_right(sim: Any, arguments: list[str], message: str) -> None:
    result = sim(*arguments)
    assert result.exit_code == 2
    assert message in result.output


def test_the_totals_so_far_are_printed_after_ctrl_c(sim: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(plan: SeedPlan) -> SeedResult:
        if plan.seed == 4:
            raise KeyboardInterrupt
        return _play(plan)

    monkeypatch.setattr(seeds, "run_seed", interrupted)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    assert "\n4 seeds, 2 failed, 0.07 virtual h in " in sim("--seeds", "0..9").output


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"seed": 1}', "Object missing required field"),
        (b'{"plan": {"seed": 1}, "digest": "\xff"}', "can't decode byte 0xff"),
        (msgspec.json.encode(_play(SeedPlan(seed=1, workloads=("reading",)))), "no workload or fault 'reading'"),
        (msgspec.json.encode(_play(SeedPlan(seed=1, faults=("kill", "burn")))), "no workload or fault 'burn'"),
    ],
)
def test_a_file_that_is_no_failure_is_refused(sim: Any, data: bytes, reason: str) -> None:
    Path("x.json").write_bytes(data)
    output = " ".join(sim("--replay", "x.json").output.split())
    assert "x.json is not a sim-SEED.json of a failure" in output
    assert reason in output


def test_a_table_is_continued_with_the_seeds_that_it_lacks(sim: Any) -> None:
    assert sim("--seeds", "2..3", "--output", "o").exit_code == 1
    result = sim("--seeds", "0..4", "--output", "o", "--json")
    assert result.exit_code == 1, "seed 3 failed before"
    assert "2 seeds were played before; failed: 3\n" in result.stderr
    assert sorted(json.loads(line)["plan"]["seed"] for line in result.stdout.splitlines()) == [0, 1, 4]
    assert "seeds and 2 before, 1 failed" in sim("--seeds", "2..3", "--output", "o").stdout
    rows = sorted(pq.read_table("o/seeds").to_pylist(maps_as_pydicts="strict"), key=lambda row: row["seed"])
    assert [row["seed"] for row in rows] == [0, 1, 2, 3, 4]
    assert rows[3]["findings"] == ["lost in t-0: b'1'"]
    assert rows[3]["probes"] == {"a": 1}
    assert rows[3]["workloads"] == draw_workloads(3)
    assert rows[3]["wall_s"] >= 0
    assert Path("o/sim-3.json").exists()


def test_seeds_of_other_settings_or_of_another_version_do_not_mix(sim: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sim("--seed", "2", "--output", "o")
    result = sim("--seed", "2", "--output", "o", "--faults", "kill")
    assert "o has seeds of other settings (faults): choose another --output, or remove it" in str(result.exception)
    monkeypatch.setattr(odradek, "__version__", "9.9")
    assert "other settings (version)" in str(sim("--seed", "2", "--output", "o").exception)


def test_an_interrupted_command_keeps_the_seeds_that_were_played(sim: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def play(plan: SeedPlan) -> SeedResult:
        if plan.seed == 6:
            raise KeyboardInterrupt
        return _play(plan)

    monkeypatch.setattr(seeds, "run_seed", play)
    result = sim("--seeds", "4..9", "--output", "o", "--json")
    assert result.exit_code
    assert "2 seeds are kept in o: the same command continues" in result.stderr
    assert pq.read_table("o/seeds")["seed"].to_pylist() == [4, 5]


def test_a_damaged_file_of_the_table_is_named(sim: Any) -> None:
    sim("--seed", "2", "--output", "o")
    Path("o/seeds/0000000.parquet").write_bytes(b"PAR1")
    assert "0000000.parquet cannot be read" in str(sim("--seed", "2", "--output", "o").exception)


def test_no_worker_is_left_by_a_command_that_was_killed(tmp_path: Path) -> None:
    odradek = Path(sys.executable).with_name("odradek")
    command = subprocess.Popen([odradek, "sim", "--seeds", "0..999", "--workers", "2"], cwd=tmp_path)
    try:
        children = Path(f"/proc/{command.pid}/task/{command.pid}/children")
        eventually(lambda: len(children.read_text().split()) == 3, within_s=60, what="two workers and their tracker")
        workers = children.read_text().split()
    finally:
        command.kill()
        command.wait(10)
    eventually(lambda: not any(map(_runs, workers)), within_s=60, what="the end of the workers")
    assert not any(map(_runs, workers))


def _runs(process: str) -> bool:
    try:
        return b"multiprocessing" in Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return False
