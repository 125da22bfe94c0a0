"""`odradek sim --mistakes` plays seeds on copies of the source tree with a mistake each, until a check finds it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.cli.sim import command, mistakes
from odradek.cli.sim.mistakes import MISTAKES

pytestmark = pytest.mark.long


def test_a_mistake_is_found_by_a_check_and_a_harmless_change_by_none(tmp_path: Path) -> None:
    patch = (MISTAKES / "fetch-acknowledges-all.patch").read_text()
    (tmp_path / "a.patch").write_text(patch)
    (tmp_path / "b.patch").write_text(patch.replace("max(offset, self.end_offset_at_last_fetch)", "offset + 0"))
    (tmp_path / "c.patch").write_text(patch.replace("+        self.log", "+        )self.log"))
    result = CliRunner().invoke(command, ["--mistakes", str(tmp_path), "--seeds", "6..7", "--workers", "2", "--json"])
    first, second, third = map(json.loads, result.stdout.splitlines())
    assert result.exit_code == 1
    assert first["check"] == "checks.replicas", first
    assert (second["seeds"], second["finding"]) == (2, "")
    assert (third["seeds"], third["finding"]) == (0, "it ended in seed 6")


def test_a_patch_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    patch = (MISTAKES / "fetch-acknowledges-all.patch").read_text()
    (tmp_path / "a.patch").write_text(patch.replace("         elif", "         if"))
    result = CliRunner().invoke(command, ["--mistakes", str(tmp_path)])
    assert "a.patch does not fit the source" in str(result.exception)


def test_a_patch_without_a_workload_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.patch").write_text("A sentence.\n--- a/x\n")
    result = CliRunner().invoke(command, ["--mistakes", str(tmp_path)])
    assert "a.patch has no header" in str(result.exception)


def test_an_installed_package_says_that_mistakes_need_a_source_tree(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mistakes, "MISTAKES", Path("nosuch"))
    result = CliRunner().invoke(command, ["--mistakes"])
    assert "run it in a source tree" in str(result.exception)


def test_other_options_are_refused() -> None:
    result = CliRunner().invoke(command, ["--mistakes", "--faults", "kill"])
    assert result.exit_code == 2
    assert "--mistakes takes --seeds, --workers and --json" in result.output
