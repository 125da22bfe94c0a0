"""`odradek bench` in a source tree and in an installed package."""

import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from bench.clients.processes import client_command
from odradek.cli import bench, main

pytestmark = pytest.mark.long


def test_a_source_tree_has_the_benchmarks():
    assert "compare" in CliRunner().invoke(bench.load(bench.SOURCE_TREE), ["--help"]).output


def test_an_installed_package_says_how_to_get_the_benchmarks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(bench, "command", bench.load(tmp_path))
    result = CliRunner().invoke(main, ["bench", "compare", "--peer", "kafka", "--help"])
    assert result.exit_code == 1
    assert "`make bench` in a source tree" in result.output


def test_the_benchmarks_run_in_any_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """A client of a benchmark is a process of its own, which has to find the source tree, too."""
    monkeypatch.chdir(tmp_path)
    command = client_command("none")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "KeyError: 'none'" in done.stderr
