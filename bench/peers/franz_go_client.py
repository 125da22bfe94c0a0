"""Builds the client of franz-go, once: `<cache>/franz_go-<hash of its sources>/franz_go`.

A first build of a machine compiles Go's standard library, too: a minute of processor time. Later ones take the build
cache of Go.
"""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from odradek.model import UnavailableError
from odradek.spark.local.cache import cache_directory

_SOURCES: Final = Path(__file__).with_name("franz_go")
_BUILD_S: Final = 300


def franz_go() -> Path:
    """Return the program. Raise `UnavailableError` without Go, or if it can't be built."""
    content = b"".join((_SOURCES / name).read_bytes() for name in ("main.go", "go.mod", "go.sum"))
    program = cache_directory() / f"franz_go-{hashlib.sha256(content).hexdigest()[:16]}" / "franz_go"
    if not program.exists():
        _build(program)
    return program


def _build(program: Path) -> None:
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise UnavailableError("franz-go is built by Go: install it, so that `go` is in the PATH")
    program.parent.mkdir(parents=True, exist_ok=True)
    new = program.with_name(f"franz_go.{os.getpid()}")
    # Without debugging symbols the linker has half of the work.
    command = [go, "build", "-trimpath", "-mod=readonly", "-ldflags=-s -w", "-o", str(new), "."]
    environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-buildvcs=false", "GOTOOLCHAIN": "local"}
    try:
        done = subprocess.run(
            command, cwd=_SOURCES, env=environment, capture_output=True, text=True, timeout=_BUILD_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise UnavailableError(f"Go did not build the client of franz-go within {_BUILD_S} s") from None
    if done.returncode != 0:
        raise UnavailableError(f"Go can't build the client of franz-go: {done.stderr.strip()[-300:]}")
    new.replace(program)
