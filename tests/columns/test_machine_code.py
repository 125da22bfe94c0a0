"""Machine code that is kept on disk: what it answers, and what is done about a file that is not what was written."""

import ast
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from odradek.columns import machine_code
from odradek.columns.compaction_code import KERNELS
from odradek.columns.machine_code import Compiler, Function, Kernels, Preparation, compile_here
from odradek.testing.conditions import eventually

KERNEL = """
def largest(first: int, second: int) -> int:
    return max(first, second)


def sum_to(last: int) -> int:
    total = 0
    for number in range(last + 1):
        total += number
    return total
"""


@pytest.fixture
def kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernels:
    """Two functions that nobody has compiled so far, and an empty folder to keep them in, alone."""
    (tmp_path / "a_kernel_of_the_tests.py").write_text(KERNEL)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(machine_code, "_folders", lambda: iter([tmp_path / "kept"]))
    monkeypatch.setattr(machine_code, "Compiler", CompilerHere)
    return Kernels("a_kernel_of_the_tests", {"largest": 2, "sum_to": 1}, [tmp_path / "a_kernel_of_the_tests.py"])


class CompilerHere(Compiler):
    """Compiles in this process, in which numba is already."""

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels

    def code(self, *, wait: bool) -> bytes:
        assert wait
        return compile_here(self._kernels, machine_code._folders())


def load(kernels: Kernels) -> Mapping[str, Function]:
    functions = Preparation(kernels).functions(wait=True)
    assert functions is not None
    return functions


def test_functions_take_and_give_numbers_of_64_bits(kernels: Kernels) -> None:
    functions = load(kernels)
    assert functions["largest"](-(1 << 63), (1 << 63) - 1) == (1 << 63) - 1
    assert functions["largest"](-5, -(1 << 40)) == -5
    assert functions["sum_to"](10**6) == 500_000_500_000


def test_what_is_kept_is_compiled_once_unless_a_part_of_it_is_missing(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(kernels)
    (kept,) = (tmp_path / "kept").iterdir()
    whole = kept.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(machine_code, "build", lambda kernels: pytest.fail("it is there"))
        assert load(kernels)["sum_to"](3) == 6
    for part in (whole[:-1], whole[:20], b"", bytes(len(whole))):
        kept.write_bytes(part)
        assert load(kernels)["sum_to"](3) == 6
        assert kept.read_bytes()[:32] != part[:32] or part[:32] == whole[:32]


def test_a_changed_source_is_compiled_anew(kernels: Kernels, tmp_path: Path) -> None:
    load(kernels)
    kernels.sources[0].write_text(KERNEL + "# changed")
    load(kernels)
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_where_nothing_can_be_kept_it_is_compiled_for_this_process(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(machine_code, "_folders", lambda: iter([tmp_path / "file" / "below"]))
    assert load(kernels)["largest"](1, 2) == 2
    assert not (tmp_path / "kept").exists()


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kernels]:
    """A function for another process to compile, which may not be found in the working directory."""
    modules, here = tmp_path / "modules", tmp_path / "here"
    modules.mkdir()
    here.mkdir()
    (modules / "another_kernel_of_the_tests.py").write_text(KERNEL)
    (here / "numba.py").write_text("raise SystemExit('this is not numba')")
    monkeypatch.chdir(here)
    monkeypatch.syspath_prepend(str(modules))
    monkeypatch.syspath_prepend("")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    kernels = Kernels("another_kernel_of_the_tests", {"sum_to": 1}, [modules / "another_kernel_of_the_tests.py"])
    yield kernels
    key = machine_code._key(machine_code._llvm(), kernels)
    for folder in machine_code._folders():
        (folder / f"{key}.object").unlink(missing_ok=True)


def test_another_process_compiles_for_this_one(elsewhere: Kernels) -> None:
    """So that neither the lock of the interpreter nor memory is taken for it here."""
    assert load(elsewhere)["sum_to"](4) == 10
    assert elsewhere.module not in sys.modules
    key = machine_code._key(machine_code._llvm(), elsewhere)
    assert list(machine_code._kept(key)), "for the next one"


def test_what_numba_has_kept_of_an_inner_function_is_not_taken(elsewhere: Kernels) -> None:
    """It is kept by that function's own file, whatever else has changed."""
    (kernel,) = elsewhere.sources
    numbers = kernel.with_name("numbers_of_the_tests.py")
    kernel.write_text("""
from numba import njit
from numbers_of_the_tests import STEP
@njit(cache=True)
def inner(number): return number + STEP
def sum_to(last): return inner(last)
""")
    changing = elsewhere._replace(sources=[kernel, numbers])
    for step in (1, 20, 300):
        numbers.write_text(f"STEP = {step}")
        assert load(changing)["sum_to"](1000) == 1000 + step


def test_who_does_not_wait_is_told_when_it_is_there(elsewhere: Kernels) -> None:
    preparation = Preparation(elsewhere)
    assert preparation.functions(wait=False) is None
    eventually(lambda: preparation.functions(wait=False) is not None)
    assert preparation.functions(wait=False) is preparation.functions(wait=True)


def test_a_compiler_that_fails_says_why_and_nothing_is_compiled_here(
    elsewhere: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere.sources[0].write_text("raise ValueError('no kernel')")
    monkeypatch.setattr(machine_code, "build", lambda kernels: pytest.fail("not here"))
    with pytest.raises(ImportError, match="ValueError: no kernel"):
        load(elsewhere)


def test_a_compiler_that_is_not_needed_any_more_leaves_nothing(elsewhere: Kernels) -> None:
    compiler = Compiler(elsewhere)
    folder = compiler._answer.parent
    assert folder.exists()
    compiler.kill()
    assert compiler._process.returncode is not None
    assert not folder.exists()


@pytest.mark.parametrize(("name", "value"), [("executable", ""), ("frozen", True)])
def test_where_python_cannot_be_started_there_is_no_compiler(
    elsewhere: Kernels, monkeypatch: pytest.MonkeyPatch, name: str, value: object
) -> None:
    monkeypatch.setattr(sys, name, value, raising=False)
    with pytest.raises(ImportError, match="no Python"):
        Compiler(elsewhere)


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_code_that_others_could_have_written_is_not_run(kernels: Kernels, tmp_path: Path, mode: int) -> None:
    load(kernels)
    (kept,) = (tmp_path / "kept").iterdir()
    assert kept.stat().st_mode & 0o777 == 0o600
    key = kept.stem
    assert len(list(machine_code._kept(key))) == 1
    kept.chmod(mode)
    assert not list(machine_code._kept(key))
    kept.chmod(0o600)
    kept.parent.chmod(0o777)
    assert not list(machine_code._kept(key))
    kept.unlink()
    load(kernels)
    assert not list(kept.parent.iterdir()), "nor is it kept there"


def test_code_of_another_user_or_behind_a_link_is_not_run(
    kernels: Kernels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(kernels)
    (kept,) = (tmp_path / "kept").iterdir()
    kept.rename(tmp_path / "elsewhere")
    kept.symlink_to(tmp_path / "elsewhere")
    assert not list(machine_code._kept(kept.stem))
    (tmp_path / "elsewhere").rename(kept)
    assert len(list(machine_code._kept(kept.stem))) == 1
    with pytest.raises(PermissionError):
        machine_code._refuse_foreign(os.stat_result([0o100600, 1, 1, 1, os.geteuid() + 1, 0, 0, 0, 0, 0]), kept)


def test_the_key_knows_every_file_that_the_kernels_take_code_or_numbers_from() -> None:
    """Else a release whose kernels have not changed themselves would run those of the one before."""
    source = Path(machine_code.__file__).parents[1]
    known = {path.resolve() for path in KERNELS.sources}
    for path in known:
        if path.parent.name != "columns":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("odradek."):
                names = {alias.name for alias in node.names}
                assert names <= {"Buffer", "compaction_layout"} or (
                    source.joinpath(*node.module.split(".")[1:]).with_suffix(".py") in known  # type: ignore[union-attr]
                ), f"{path.name}: {node.module}"
