"""The compiled code of compaction: who compiles it, where it is kept, and which files are not run."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from odradek.columns import compaction_code as module
from odradek.columns.compaction_code import compaction_code, compile_now

pytestmark = pytest.mark.long


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to keep code in, and a process that has loaded none."""
    monkeypatch.setattr(module, "_folders", lambda: iter([tmp_path / "kept"]))
    for name in ("code", "engine", "compiler"):
        monkeypatch.setattr(module._Loaded, name, None)
    return tmp_path / "kept"


class Compiler:
    """A process that a test ends; `status` is None until then."""

    started = 0

    def __init__(self) -> None:
        self.status: int | None = None
        self.started += 1

    def poll(self) -> int | None:
        return self.status


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    compiler = Compiler()
    monkeypatch.setattr(module, "_start_compiler", lambda: compiler)
    return compiler


def name() -> str:
    return module._file_name(module._llvm())


def test_another_process_compiles_and_the_code_is_loaded_when_it_is_there(folder: Path, compiler: Compiler) -> None:
    assert compaction_code() is None
    assert compaction_code() is None
    compile_now()
    assert [each.name for each in folder.iterdir()] == [name()]
    code = compaction_code()
    assert code is not None
    assert compaction_code() is code


def test_a_compiler_that_leaves_no_code_is_an_error(folder: Path, compiler: Compiler) -> None:
    assert compaction_code() is None
    compiler.status = 1
    with pytest.raises(ImportError, match="status 1"):
        compaction_code()


def test_the_process_that_compiles_imports_nothing_from_the_working_directory_and_keeps_what_it_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numba.py").write_text("raise SystemExit('this is not numba')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    monkeypatch.setitem(sys.modules, "numba", None)
    monkeypatch.delitem(sys.modules, "numba")
    process = module._start_compiler()
    assert process.wait(timeout=100) == 0
    assert module._read(name())


@pytest.mark.parametrize("missing", ["", None])
def test_without_a_python_to_run_nothing_is_compiled(
    missing: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", missing)
    with pytest.raises(ImportError, match="needs numba"):
        compaction_code()


def test_code_that_another_user_could_have_written_is_not_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module._write("some.object", b"code")
    kept = folder / "some.object"
    assert module._read("some.object") == b"code"
    for mode in (0o620, 0o602):
        kept.chmod(mode)
        assert module._read("some.object") is None
    kept.chmod(0o600)
    assert module._read("some.object") == b"code"
    monkeypatch.setattr(os, "geteuid", lambda: kept.stat().st_uid + 1)
    assert (module._read("some.object") is None) == (kept.stat().st_uid != 0)


def test_code_is_kept_in_the_first_folder_that_can_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    folders = [tmp_path / "file" / "below", tmp_path / "cache"]

    def two() -> Iterator[Path]:
        yield from folders

    monkeypatch.setattr(module, "_folders", two)
    module._write("some.object", b"code")
    assert [each.name for each in folders[1].iterdir()] == ["some.object"]
    folders.pop()
    with pytest.raises(OSError, match="file"):
        module._write("some.object", b"code")


def test_a_changed_source_or_another_machine_has_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {name()}
    with monkeypatch.context() as patch:
        patch.setattr(module._llvm(), "get_host_cpu_name", lambda: "another")
        names.add(name())
    package = tmp_path / "odradek"
    for folder in ("columns", "protocol/batches"):
        (package / folder).mkdir(parents=True)
        for source in (module._HERE.parent / folder).glob("*.py"):
            (package / folder / source.name).write_bytes(source.read_bytes())
    monkeypatch.setattr(module, "_HERE", package / "columns")
    assert name() in names
    for source in ("columns/memory.py", "protocol/batches/record_batch.py"):
        (package / source).write_text("changed")
        names.add(name())
    assert len(names) == 4


def test_cached_compaction_code_runs_without_numba() -> None:
    """Else the system would end the process that loads the code."""
    if compaction_code() is None:
        compile_now()
    program = """
import sys
sys.modules["numba"] = None
from odradek.columns.compaction_code import compaction_code
code = compaction_code()
result = bytearray(24)
import ctypes
place = ctypes.addressof(ctypes.c_char.from_buffer(result))
assert code.find_batches(place, 0, 0, 0, 0, place, 0, place) == -1
"""
    run: Any = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
