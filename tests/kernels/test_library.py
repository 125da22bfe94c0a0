"""The library for records: how it is made, when it is used, and what is said when it is not."""

import errno
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import hatch_build
from odradek.kernels import FILE, LIBRARY, MISSING, SOURCE, Library, address, load

ROOT = Path(__file__).parents[2]


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Path]:
    """A library and its source, in a folder of their own."""
    source, library = tmp_path / SOURCE.name, tmp_path / FILE.name
    source.write_bytes(SOURCE.read_bytes())
    assert hatch_build.compile_library(source, library) == ""
    assert sorted(each.name for each in tmp_path.iterdir()) == [source.name, library.name]
    return library, source


@pytest.fixture(autouse=True)
def switch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The switch is on, also where the suite runs with it off."""
    monkeypatch.delenv("ODRADEK_KERNELS", raising=False)


def test_a_library_that_fits_its_source_is_loaded(made: tuple[Path, Path]) -> None:
    library, trouble = load(*made)
    assert trouble == ""
    assert library is not None
    words = bytearray(16)
    library.digest(b"", 0, bytes(range(16)), address(words))
    assert words.hex() == "a3817f04ba25a8e66df67214c7550293", "the first vector of SipHash's authors"


def test_a_library_of_another_version_is_refused(made: tuple[Path, Path]) -> None:
    library, source = made
    source.write_bytes(source.read_bytes() + b"\n")
    assert load(library, source) == (None, f"{library} was made from another records.c: install Odradek again")


@pytest.mark.parametrize("content", [b"", b"\x7fELF of another machine", b"#!/bin/sh\n"])
def test_a_file_that_is_no_library_is_refused(made: tuple[Path, Path], content: bytes) -> None:
    library, source = made
    library.unlink()
    library.write_bytes(content)
    found, trouble = load(library, source)
    assert found is None
    assert trouble.startswith(f"{library} cannot be loaded: ")


def test_a_missing_library_and_the_switch_have_reasons_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load(tmp_path / "nothing.so") == (None, "Odradek was installed without a C compiler, or compiling failed")
    monkeypatch.setenv("ODRADEK_KERNELS", "off")
    assert load() == (None, "ODRADEK_KERNELS=off")


def test_the_library_needs_no_other_and_exports_what_is_declared(made: tuple[Path, Path]) -> None:
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed")
    dynamic = subprocess.run(["readelf", "-d", made[0]], capture_output=True, text=True, check=True).stdout
    assert "NEEDED" not in dynamic
    assert "PATH" not in dynamic
    symbols = subprocess.run(["readelf", "--dyn-syms", made[0]], capture_output=True, text=True, check=True).stdout
    assert " UND " not in symbols.replace("NOTYPE  LOCAL  DEFAULT  UND", "")
    exported = {line.split()[-1] for line in symbols.splitlines() if " GLOBAL " in line}
    assert exported == {name for name in vars(Library) if not name.startswith("_")} | {"source_hash"}


@pytest.mark.parametrize("script", ["exit 1", "echo no such flag >&2; exit 1", "exit 0"])
def test_a_compiler_that_fails_leaves_no_library(
    script: str, tmp_path: Path, made: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "bin" / "cc"
    compiler.parent.mkdir()
    compiler.write_text(f"#!/bin/sh\n{script}\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", str(compiler.parent))
    assert str(compiler) in hatch_build.compile_library(made[1], made[0])
    assert not made[0].exists()


def test_without_any_compiler_the_hook_needs_zig(made: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(hatch_build, "_zig", list)
    assert hatch_build.compile_library(made[1], made[0]) == "there is neither cc nor ziglang"
    hook = object.__new__(hatch_build.RecordsBuildHook)
    assert hook.dependencies() == ["ziglang"]
    monkeypatch.undo()
    assert hook.dependencies() == []
    monkeypatch.setenv("ODRADEK_TARGET", "aarch64-linux")
    assert hook.dependencies() == ["ziglang"]


def test_zig_compiles_for_every_machine_of_its_kind(
    tmp_path: Path, made: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Zig's default is this very processor: elsewhere its instructions would end the process."""
    (tmp_path / "ziglang").mkdir()
    (tmp_path / "ziglang" / "__main__.py").write_text("import sys; sys.exit(' '.join(sys.argv[1:]))")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    assert "failed: cc -mcpu=baseline " in hatch_build.compile_library(made[1], made[0])


def build(kind: str, source: Path, folder: Path, **environment: str) -> Path:
    """Build a wheel or an sdist of a project without its isolation."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(folder)]
    subprocess.run(command, cwd=source, env=os.environ | environment, check=True, capture_output=True, timeout=120)
    (made,) = folder.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return made


@pytest.mark.long
def test_a_wheel_of_the_source_distribution_has_the_library_and_without_a_compiler_it_has_none(tmp_path: Path) -> None:
    sdist = build("sdist", ROOT, tmp_path / "sdist")
    shutil.unpack_archive(sdist, tmp_path)
    source = tmp_path / sdist.name.removesuffix(".tar.gz")
    assert not list(source.rglob("*.so"))
    wheel = build("wheel", source, tmp_path / "wheel")
    assert "-py3-none-linux_" in wheel.name
    with zipfile.ZipFile(wheel) as archive:
        assert {"odradek/kernels/records.so", "odradek/kernels/records.c"} <= set(archive.namelist())
    (tmp_path / "bin").mkdir()
    plain = build("wheel", source, tmp_path / "plain", PATH=str(tmp_path / "bin"))
    assert plain.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(plain) as archive:
        assert "odradek/kernels/records.so" not in archive.namelist()


@pytest.mark.long
def test_a_wheel_is_built_without_writing_to_its_source(tmp_path: Path) -> None:
    """Else it needs a writable source, and two builds at once, perhaps for other machines, take each other's file."""
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, source)
    library = source / FILE.relative_to(ROOT)
    library.write_bytes(b"of another machine")
    wheel = build("wheel", source, tmp_path / "wheel")
    assert library.read_bytes() == b"of another machine"
    with zipfile.ZipFile(wheel) as archive:
        assert archive.namelist().count("odradek/kernels/records.so") == 1
        assert archive.read("odradek/kernels/records.so").startswith(b"\x7fELF")


def test_where_nothing_can_be_written_compiling_fails_in_words(
    made: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    monkeypatch.setattr(hatch_build, "FLAGS", ["--no-such-flag"])
    assert "failed: " in hatch_build.compile_library(made[1], made[0])


@pytest.mark.skipif(platform.machine() != "x86_64" or not shutil.which("cc"), reason="no compiler for 32 bits")
def test_a_machine_of_32_bits_has_no_library() -> None:
    """Its addresses do not fit the tables that Python fills: the library would write to wrong places."""
    command = ["cc", "-m32", *hatch_build.FLAGS, "-fsyntax-only", str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode
    assert "addresses have 64 bits" in done.stderr


def test_an_address_keeps_no_export_of_its_buffer() -> None:
    data = bytearray(100)
    view = memoryview(data)[10:]
    assert address(view) == address(data) + 10
    view.release()
    data.extend(bytes(1000))
    assert address(memoryview(bytes(data)).toreadonly())


@pytest.mark.long
def test_a_broker_and_clients_do_without_the_library() -> None:
    """Records are read through columns, too; the log says once why that is slow."""
    program = """
import logging
logging.basicConfig(format="%(levelname)s %(message)s")
from odradek.clients.blocking import Producer, SimpleConsumer
from odradek.testing import Cluster
with Cluster() as kafka:
    kafka.create_topic("t")
    with Producer(kafka.bootstrap_servers) as producer, SimpleConsumer(kafka.bootstrap_servers) as simple:
        producer.send("t", b"v", key=b"k", headers=[("h", b"x")]).result()
        print(simple.read_arrow(("t", 0), 0).select(["key", "value", "offset"]).to_pylist())
"""
    environment = os.environ | {"ODRADEK_KERNELS": "off"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stdout == "[{'key': b'k', 'value': b'v', 'offset': 0}]\n", done.stderr
    warnings = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert warnings == ["WARNING Python checks and compacts records, which is slower: ODRADEK_KERNELS=off"]


def test_the_library_is_there_where_tests_run() -> None:
    """Else they would compare Python with itself."""
    assert LIBRARY is not None or MISSING == "ODRADEK_KERNELS=off"
