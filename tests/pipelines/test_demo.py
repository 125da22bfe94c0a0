"""The demo, shortened: `make demo` runs the same program over the whole year."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.testing.conditions import eventually

pytestmark = [pytest.mark.needs("java"), pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """The demo over 1,000 flights, in a session of its own, with its temporary files under `tmp_path`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "demo", "--rows", "1000"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path), "COLUMNS": "120"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    yield process
    if process.poll() is None:
        process.kill()
    process.communicate()


def members(session: int) -> list[int]:
    """The processes of a session that are still there, zombies aside."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[3] == str(session) and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def test_the_demo_s_counts_agree_and_no_process_is_left(demo: subprocess.Popen[str], tmp_path: Path) -> None:
    printed, _ = demo.communicate(timeout=500)
    assert demo.returncode == 0, printed
    assert "counts agree with the source files" in printed
    assert re.search(
        r"^killed +broker \d, .* kill -9: led by broker \d after .* s, whole again after .* s$", printed, re.M
    )
    assert all(name in printed for name in ("publish", "delays (real time)", "archive (offline)", "mirror"))
    assert printed.count("flights left") == 5
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("odradek-demo")] == []


def test_ctrl_c_stops_the_demo_and_removes_its_files(demo: subprocess.Popen[str], tmp_path: Path) -> None:
    assert demo.stdout is not None
    for line in demo.stdout:
        if line.startswith("publishing"):
            break
    # A terminal sends it to all of the group.
    os.killpg(demo.pid, signal.SIGINT)
    printed, _ = demo.communicate(timeout=120)
    assert demo.returncode == 130, printed
    assert printed.rstrip().endswith("stopped; nothing is left behind"), printed
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("odradek-demo")] == []
    eventually(lambda: not members(demo.pid), what="every process of the demo to end")
