"""Compiles `src/odradek/kernels/records.c` for wheels and editable installs.

The compiler is `cc` or, where there is none, zig from PyPI. If there is neither, or
compiling fails, the wheel is `py3-none-any`, and Python does the work.
`ODRADEK_TARGET=aarch64-linux` (one of `TARGETS`) builds for another machine, by zig.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import zlib
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

FLAGS = [
    "-std=c11",
    "-O2",
    "-fPIC",
    "-shared",
    "-nostdlib",
    "-ffreestanding",
    "-fno-stack-protector",
    "-fvisibility=hidden",
    "-fno-builtin",
    "-s",
]
"""Freestanding: the library needs no other one, so that one file serves every C library."""
_MANYLINUX = "manylinux_2_17_{0}.manylinux2014_{0}.musllinux_1_1_{0}"
TARGETS = {
    "x86_64-linux": _MANYLINUX.format("x86_64"),
    "aarch64-linux": _MANYLINUX.format("aarch64"),
    "aarch64-macos": "macosx_11_0_arm64",
}
"""The platform tags of zig's targets."""


class RecordsBuildHook(BuildHookInterface[Any]):
    """Adds the library to a wheel and makes its tag fit."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """Ask for zig where there is no other compiler, or for another machine."""
        return ["ziglang"] if "ODRADEK_TARGET" in os.environ or not shutil.which("cc") else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile: beside the source for an editable install, else elsewhere, so that builds share no file."""
        target, is_editable = os.environ.get("ODRADEK_TARGET"), version == "editable"
        source = Path(self.root, "src/odradek/kernels/records.c")
        self._folder = TemporaryDirectory()
        library = source.with_suffix(".so") if is_editable else Path(self._folder.name, "records.so")
        trouble = compile_library(source, library, target)
        if trouble and target:
            raise SystemExit(trouble)
        if trouble:
            self.app.display_warning(f"Odradek will read and write records by Python, more slowly: {trouble}")
            return
        platform = TARGETS[target] if target else sysconfig.get_platform().replace("-", "_").replace(".", "_")
        if not is_editable:
            build_data["force_include"][str(library)] = "odradek/kernels/records.so"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-{platform}"


def compile_library(source: Path, library: Path, target: str | None = None) -> str:
    """Compile for this machine, or a target; return what is wrong, or an empty text. A failure leaves no library."""
    trouble = _compile(source, library, target)
    if trouble:
        with suppress(OSError):  # the folder may be read-only
            library.unlink()
    return trouble


def _compile(source: Path, library: Path, target: str | None) -> str:
    compiler = [shutil.which("cc")] if not target and shutil.which("cc") else _zig()
    if not compiler:
        return "there is neither cc nor ziglang"
    made_from = f"{zlib.crc32(source.read_bytes()):08x}"
    new = library.with_suffix(f".{os.getpid()}.so")
    command = [*compiler, *FLAGS, *(("-target", target) if target else ()), f'-DSOURCE_HASH="{made_from}"']
    try:
        done = subprocess.run([*command, "-o", str(new), str(source)], capture_output=True, text=True, timeout=300)
        if done.returncode:
            return f"{' '.join(compiler)} failed: {(done.stderr.strip() or 'without a word').splitlines()[-1]}"
        new.replace(library)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{' '.join(compiler)}: {error}"
    finally:
        for left in library.parent.glob(f"records.{os.getpid()}.*"):
            left.unlink()
    return ""


def _zig() -> list[str]:
    return [sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline"] if importlib.util.find_spec("ziglang") else []
