"""A test run that is interrupted or killed leaves no broker, also where xdist's workers have started it."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from odradek.testing import eventually

ROOT: Final = Path(__file__).parents[2]
DEADLINE_S: Final = 120.0
TESTS: Final = """
import os, signal
from pathlib import Path
import pytest
from odradek.testing.servers.odradek_process import ServedBroker

@pytest.mark.parametrize("number", [0, 1])
def test_that_never_ends(number, tmp_path):
    with ServedBroker(tmp_path / "data") as broker:
        written = Path(f"started-{number}")
        written.with_suffix(".new").write_text(str(broker.pid))
        written.with_suffix(".new").rename(written)
        signal.pause()
"""


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc and pidfd")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=lambda number: number.name)
@pytest.mark.parametrize("workers", [0, 2])
def test_brokers_end_with_the_run_that_has_started_them(tmp_path: Path, number: signal.Signals, workers: int):
    (tmp_path / "test_that_never_ends.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "-c", str(ROOT / "pyproject.toml")]
    arguments = [
        "--rootdir",
        str(tmp_path),
        "--numprocesses",
        str(workers),
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        str(tmp_path),
    ]
    run = subprocess.Popen(
        [*command, *arguments],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    brokers: list[int] = []
    try:
        expected = [tmp_path / f"started-{each}" for each in range(max(workers, 1))]
        assert eventually(lambda: all(each.exists() for each in expected), within_s=DEADLINE_S)
        brokers = [os.pidfd_open(int(each.read_text())) for each in expected]
        run.send_signal(number)  # to this process, not to its group
        run.wait(DEADLINE_S)
        for broker in brokers:
            assert select.select([broker], [], [], DEADLINE_S)[0], "a broker still runs"
    finally:
        run.kill()
        run.wait()
        for broker in brokers:
            os.close(broker)
