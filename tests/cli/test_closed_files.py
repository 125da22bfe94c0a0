"""Commands whose standard files whoever started them has closed."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.long

DEADLINE_S: Final = 60


@pytest.mark.parametrize("arguments", [["topics", "list"], ["produce", "t"], ["consume", "t"]])
def test_a_command_with_closed_standard_files_exits_as_usual(arguments: list[str], tmp_path: Path) -> None:
    patience = tmp_path / "client.properties"
    patience.write_text("default.api.timeout.ms=1\nmax.block.ms=1\n")
    where = ["--bootstrap-server", "127.0.0.1:1", "--command-config", str(patience)]
    command = [sys.executable, "-m", "odradek", *arguments, *where]
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&- >&-', "sh", *command],
        stderr=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr.count("\n")) == (1, 1), done
    assert done.stderr.startswith("odradek: ")


@pytest.mark.parametrize("arguments", [["--help"], ["topics", "--help"]])
def test_a_help_text_without_a_reader_exits_as_by_sigpipe(arguments: list[str]) -> None:
    command = [sys.executable, "-m", "odradek", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    with process:
        assert process.stderr is not None
        assert (process.stderr.read(), process.wait(DEADLINE_S)) == (b"", 141)
