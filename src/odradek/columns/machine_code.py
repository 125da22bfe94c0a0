"""Kernels as machine code that lies on disk, to be called without numba: made by numba once, loaded by llvmlite alone.

numba takes half a second and more than a hundred megabytes until the first of its functions can be called, however
small it is and though it keeps what it compiled: it loads all its own parts. A kernel whose arguments and answer are
int64, and that raises nothing, needs none of them.

```
kernels ── numba ──► LLVM's form of each ── with a function of C's manner before it, all else private ──► object code
object code ── kept in a file, by what it was made of and for ── llvmlite ──► functions that Python calls by ctypes
```
A file begins with the SHA-256 of the object code behind it, so that half a file is none.
"""

import atexit
import ctypes
import hashlib
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, mkstemp
from typing import Any, Final, NamedTuple

_DIGEST_BYTES: Final = 32
_ALLOWED: Final = {"memcpy", "memmove", "memset"}
"""What machine code may call beside itself: C's library is always there."""
_COMPILED_WITHIN_S: Final = 120
_kept_alive: Final[list[Any]] = []

Function = Callable[..., int]


class Kernels(NamedTuple):
    """A module's functions by their names, which have so many arguments, and the files that it is made of."""

    module: str
    arities: Mapping[str, int]
    sources: Sequence[Path]


class Compiler:
    """Another process that compiles kernels, and keeps what comes out.

    In this one it would take the interpreter's lock for seconds, and numba's memory would stay. It imports from where
    this one does, but never from the working directory, and takes nothing that numba has kept: numba looks at the file
    of a kernel only, not at those of what it calls. It ends with this process, or after `_COMPILED_WITHIN_S`.
    """

    def __init__(self, kernels: Kernels) -> None:
        """Raises `ImportError` where no such process can be had."""
        if not sys.executable or getattr(sys, "frozen", False):
            raise ImportError("there is no Python to compile with")
        if find_spec("numba") is None:
            raise ModuleNotFoundError("compiling needs numba")
        self._folder = TemporaryDirectory(prefix="odradek-", ignore_cleanup_errors=True)
        self._answer, self._errors = Path(self._folder.name) / "answer", Path(self._folder.name) / "errors"
        paths = [path for path in sys.path if os.path.isabs(path)]
        program = (
            f"import sys; sys.path[:] = {paths!r}; import os, signal; signal.alarm({_COMPILED_WITHIN_S}); os.nice(10);"
            "from pathlib import Path; from odradek.columns.machine_code import *;"
            f"compile_for_another(Kernels({kernels.module!r}, {dict(kernels.arities)!r},"
            f" [Path(each) for each in {[str(path.absolute()) for path in kernels.sources]!r}]),"
            f" Path({str(self._answer)!r}))"
        )
        atexit.register(self.kill)
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", program],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                cwd=self._folder.name,
            )

    def code(self, *, wait: bool) -> bytes | None:
        """The object code; None while it is not there. Raises `ImportError` if that did not work."""
        status = self._process.wait() if wait else self._process.poll()
        if status is None:
            return None
        try:
            code = _opened(self._answer.read_bytes()) if self._answer.exists() else None
            if code is None:
                said = self._errors.read_text(errors="replace")[-2000:]
                raise ImportError(f"the compiler of kernels ended with status {status}: {said}")
            return code
        finally:
            self.kill()

    def kill(self) -> None:
        """End it if it is still there, and remove its files."""
        atexit.unregister(self.kill)
        if (process := getattr(self, "_process", None)) is not None:
            process.kill()
            process.wait()
        self._folder.cleanup()


class Preparation:
    """Kernels' functions for a process, each for one thread at a time; what is not kept is compiled meanwhile.

    While a function runs, the interpreter's lock is not held.
    """

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._lock = threading.Lock()
        self._compiler: Compiler | None = None
        self._functions: Mapping[str, Function] | None = None

    def functions(self, *, wait: bool) -> Mapping[str, Function] | None:
        """By their names; None, without `wait`, while they are compiled, which takes seconds.

        Raises `ImportError` without llvmlite or numba. Whoever asks again after an error may wait for the same again.
        """
        with self._lock:
            if self._functions is None:
                llvm = _llvm()
                code = None
                if self._compiler is None:
                    code = next(_kept(_key(llvm, self._kernels)), None)
                    if code is None:
                        self._compiler = Compiler(self._kernels)
                if self._compiler is not None:
                    compiler, self._compiler = self._compiler, None
                    code = compiler.code(wait=wait)
                    if code is None:
                        self._compiler = compiler
                        return None
                assert code is not None
                self._functions = _linked(llvm, self._kernels, code)
            return self._functions


def compile_here(kernels: Kernels, folders: Iterable[Path]) -> bytes:
    """The object code, compiled by this process, and kept in the first of `folders` that can be used."""
    module = import_module(kernels.module)
    code = build({name: (getattr(module, name), arity) for name, arity in kernels.arities.items()})
    _keep(_key(_llvm(), kernels), code, folders)
    return code


def compile_for_another(kernels: Kernels, answer: Path) -> None:
    """What a `Compiler` runs; `answer` is where its code is to be, in a folder that is empty."""
    folders = list(_folders())
    os.environ["NUMBA_CACHE_DIR"] = str(answer.parent)  # numba is not imported yet
    answer.write_bytes(_sealed(compile_here(kernels, folders)))


def build(kernels: Mapping[str, tuple[Callable[..., int], int]]) -> bytes:
    """Object code for this machine: functions by their names, of plain Python with so many arguments. Takes seconds."""
    llvm = _llvm()
    from numba import njit, types

    whole = llvm.parse_assembly("")
    for name, (function, arity) in kernels.items():
        # Not one that numba has kept: of that it knows LLVM's form no more.
        kernel = njit(function)
        kernel.compile(types.int64(*[types.int64] * arity))
        (compiled,) = kernel.overloads.values()
        whole.link_in(llvm.parse_assembly(compiled.library.get_llvm_str()))
        whole.link_in(llvm.parse_assembly(_entry(name, compiled.fndesc.llvm_func_name, arity)))
    for each in [*whole.functions, *whole.global_variables]:
        if not each.is_declaration and each.name not in kernels:
            each.linkage = "internal"
    machine = _machine(llvm)
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(whole, passes)
    called = {each.name for each in whole.functions if each.is_declaration and not each.name.startswith("llvm.")}
    assert called <= _ALLOWED, f"the kernels are not on their own, but call {called - _ALLOWED}"
    code: bytes = machine.emit_object(whole)
    return code


def _entry(name: str, numbas_name: str, arity: int) -> str:
    """LLVM's form of `int64 name(int64, …)`, which calls numba's function: that answers through a pointer."""
    kinds = ", ".join(["ptr", "ptr", *["i64"] * arity])
    numbers = [f"i64 %{number}" for number in range(arity)]
    return f"""
declare i32 @"{numbas_name}"({kinds})
define i64 @"{name}"({", ".join(numbers)}) {{
entry:
  %answer = alloca i64
  %error = alloca ptr
  store i64 0, ptr %answer
  %status = call i32 @"{numbas_name}"({", ".join(["ptr %answer", "ptr %error", *numbers])})
  %value = load i64, ptr %answer
  ret i64 %value
}}
"""


def _linked(llvm: Any, kernels: Kernels, code: bytes) -> Mapping[str, Function]:
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine(llvm))
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _kept_alive.append(engine)
    functions: dict[str, Function] = {}
    for name, arity in kernels.arities.items():
        place = engine.get_function_address(name)
        assert place, f"{name} is not in the machine code"
        functions[name] = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * arity)(place)
    return functions


def _llvm() -> Any:
    _load_library()
    import llvmlite.binding as llvm  # type: ignore[import-untyped]

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


def _load_library() -> None:
    """Have the system load llvmlite's library before Python does, which would hold its lock for some 30 ms."""
    package = find_spec("llvmlite")
    if package is None or package.origin is None or sys.platform != "linux":
        return
    load_library = ctypes.CDLL(None).dlopen
    load_library.restype = ctypes.c_void_p
    path = Path(package.origin).with_name("binding") / "libllvmlite.so"
    load_library(ctypes.c_char_p(os.fsencode(path)), ctypes.c_int(os.RTLD_NOW))


def _machine(llvm: Any) -> Any:
    """The machine that this is, and no other: what is made for it is kept by its name and features."""
    target = llvm.Target.from_default_triple()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3, jit=True
    )


# ---- what is kept on disk -------------------------------------------------------------------------------------------


def _key(llvm: Any, kernels: Kernels) -> str:
    """What the code is made of and for."""
    from llvmlite import __version__

    made_for = [
        __version__,
        llvm.get_process_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    ]
    digest = hashlib.sha256("\n".join([*made_for, kernels.module, repr(sorted(kernels.arities.items()))]).encode())
    for path in [Path(__file__), *_version_of_numba(), *kernels.sources]:
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _version_of_numba() -> Iterator[Path]:
    """The file that says it: numba is not imported for that, nor, as a package's version would have it, much else."""
    package = find_spec("numba")
    if package is not None and package.origin is not None:
        path = Path(package.origin).with_name("_version.py")
        if path.exists():
            yield path


def _folders() -> Iterator[Path]:
    """Where compiled things are kept, by Python and by numba."""
    yield Path(__file__).with_name("__pycache__")
    if folder := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(folder)
    with suppress(RuntimeError):
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek"


def _kept(key: str) -> Iterator[bytes]:
    for folder in _folders():
        with suppress(OSError):
            code = _opened(_read_safely(folder, f"{key}.object"))
            if code is not None:
                yield code


def _read_safely(folder: Path, name: str) -> bytes:
    """A file that nobody but root and this user can have written: it will be run. Raises `OSError`."""
    _refuse_foreign(folder.stat(), folder)
    file = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(file, "rb") as opened:
        _refuse_foreign(os.fstat(file), folder / name)
        return opened.read()


def _refuse_foreign(status: os.stat_result, path: Path) -> None:
    if status.st_uid not in {0, os.geteuid()} or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"others could have written {path}")


def _sealed(code: bytes) -> bytes:
    return hashlib.sha256(code).digest() + code


def _opened(data: bytes) -> bytes | None:
    """The code of a file; None if that is not whole."""
    code = data[_DIGEST_BYTES:]
    return code if hashlib.sha256(code).digest() == data[:_DIGEST_BYTES] else None


def _keep(key: str, code: bytes, folders: Iterable[Path]) -> None:
    """In the first folder that can be written to, by nobody else; if there is none, the next process compiles again."""
    for folder in folders:
        with suppress(OSError):
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            _refuse_foreign(folder.stat(), folder)
            # Of a random name, and readable for this user alone.
            file, temporary = mkstemp(dir=folder, prefix=f"{key}.")
            try:
                with os.fdopen(file, "wb") as opened:
                    opened.write(_sealed(code))
                Path(temporary).replace(folder / f"{key}.object")
            except OSError:
                Path(temporary).unlink(missing_ok=True)
                raise
            return
