"""Compiles `compaction_kernel` once per machine and loads it without numba.

```
compaction_kernel ── numba, in another process ──► object code in a file ── llvmlite ──► functions that ctypes calls
```
Importing numba and calling a first function takes half a second and more than 100 MB, even if the function is cached.
llvmlite loads object code in 50 ms. ctypes releases the GIL during calls.
"""

import ctypes
import hashlib
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory, mkstemp
from typing import Any, Final, NamedTuple

_ARGUMENTS: Final = {"find_batches": 8, "index_keys": 8, "keep_records": 12}
_COMPILED_WITHIN_S: Final = 120
_HERE: Final = Path(__file__).parent

Function = Callable[..., int]


class CompactionCode(NamedTuple):
    """The functions of `compaction_kernel`. Arguments are numbers or addresses; the caller keeps the memory alive."""

    find_batches: Function
    index_keys: Function
    keep_records: Function


class _Loaded:
    """The functions loaded in this process, or the process that compiles them."""

    lock: Final = threading.Lock()
    code: CompactionCode | None = None
    engine: Any = None
    compiler: "subprocess.Popen[bytes] | None" = None


def compaction_code() -> CompactionCode | None:
    """Return the functions; None while another process, started on demand, compiles them for seconds.

    Raises `ImportError` without llvmlite, or if they are not compiled yet and numba is missing or fails.
    """
    with _Loaded.lock:
        if _Loaded.code is None:
            llvm = _llvm()
            object_code = _read(_file_name(llvm))
            if object_code is not None:
                _Loaded.code = _link(llvm, object_code)
            elif _Loaded.compiler is None:
                _Loaded.compiler = _start_compiler()
            elif (status := _Loaded.compiler.poll()) is not None:
                raise ImportError(f"the process that compiles compaction ended with status {status} and left no code")
        return _Loaded.code


def _link(llvm: Any, object_code: bytes) -> CompactionCode:
    engine = _Loaded.engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _machine(llvm))
    engine.add_object_file(llvm.ObjectFileRef.from_data(object_code))
    engine.finalize_object()
    functions: dict[str, Function] = {}
    for name, count in _ARGUMENTS.items():
        place = engine.get_function_address(name)
        assert place, f"{name} is not in the object code"
        functions[name] = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * count)(place)
    return CompactionCode(**functions)


def _llvm() -> Any:
    package = find_spec("llvmlite")
    if package is not None and package.origin is not None and sys.platform == "linux":
        # Python would hold the GIL for some 30 ms to load the library; a call of dlopen by ctypes does not.
        load_library = ctypes.CDLL(None).dlopen
        load_library.restype = ctypes.c_void_p
        library = Path(package.origin).with_name("binding") / "libllvmlite.so"
        load_library(ctypes.c_char_p(os.fsencode(library)), ctypes.c_int(os.RTLD_NOW))
    import llvmlite.binding as llvm  # type: ignore[import-untyped]

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


def _machine(llvm: Any) -> Any:
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    return llvm.Target.from_default_triple().create_target_machine(cpu=cpu, features=features, opt=3, jit=True)


# ---- the file -------------------------------------------------------------------------------------------------------


def _file_name(llvm: Any) -> str:
    """Return a file name that depends on the sources, llvmlite and the processor."""
    from llvmlite import __version__

    machine = (__version__, llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten())
    digest = hashlib.sha256("\n".join(machine).encode())
    for source in [*sorted(_HERE.glob("*.py")), _HERE.parent / "protocol" / "batches" / "record_batch.py"]:
        digest.update(source.read_bytes())
    return f"compaction.{digest.hexdigest()[:16]}.object"


def _folders() -> Iterator[Path]:
    yield _HERE / "__pycache__"
    with suppress(RuntimeError):  # a user without a home
        yield Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "odradek"


def _read(name: str) -> bytes | None:
    """Return the object code; None if there is no file that only root or this user can write, since it will be run."""
    for folder in _folders():
        with suppress(OSError), (folder / name).open("rb") as file:
            status = os.fstat(file.fileno())
            if status.st_uid in {0, os.geteuid()} and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                return file.read()
    return None


def _write(name: str, object_code: bytes) -> None:
    """Write the file atomically into the first writable folder. Raises `OSError` if there is none."""
    failure = OSError("there is no folder for compiled code")
    for folder in _folders():
        try:
            folder.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = mkstemp(dir=folder)
            with os.fdopen(descriptor, "wb") as file:
                file.write(object_code)
                file.flush()
                os.fsync(descriptor)
            Path(temporary).replace(folder / name)
            return
        except OSError as error:
            failure = error
    raise failure


# ---- the compiler ---------------------------------------------------------------------------------------------------


def _start_compiler() -> "subprocess.Popen[bytes]":
    """Start a process that compiles and writes the file; compiling here would hold the GIL for seconds."""
    if not sys.executable or getattr(sys, "frozen", False) or find_spec("numba") is None:
        raise ImportError("compiled compaction needs numba, and a Python to run it")
    # It imports from this process's paths except the working directory; its own session protects it from Ctrl-C.
    path = [folder for folder in sys.path if os.path.isabs(folder)]
    program = f"import sys; sys.path[:] = {path!r}; from {__name__} import compile_in_background as c; c()"
    return subprocess.Popen(
        [sys.executable, "-P", "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def compile_in_background() -> None:
    """Run `compile_now` with low priority and a time limit: the main function of the compiling process."""
    import signal

    signal.alarm(_COMPILED_WITHIN_S)
    os.nice(10)
    with TemporaryDirectory() as folder:
        # numba would reuse cached inner functions even if the functions that they call have changed.
        os.environ["NUMBA_CACHE_DIR"] = folder
        compile_now()


def compile_now() -> None:
    """Compile `compaction_kernel`, and write the object code to its file. It takes seconds."""
    import numba

    from odradek.columns.compaction_kernel import SIGNATURES

    llvm = _llvm()
    whole = llvm.parse_assembly("")
    names = {function.__name__ for function in SIGNATURES}
    for function, signature in SIGNATURES.items():
        compiled = numba.cfunc(signature)(function)
        module = llvm.parse_assembly(compiled.inspect_llvm())
        module.get_function(compiled._wrapper_name).name = function.__name__
        whole.link_in(module)
    for each in [*whole.functions, *whole.global_variables]:
        if not each.is_declaration and each.name not in names:
            each.linkage = "internal"  # so that unused functions are removed, including all that call Python
    machine = _machine(llvm)
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=3))
    passes.getModulePassManager().run(whole, passes)
    called = {each.name for each in whole.functions if each.is_declaration and not each.name.startswith("llvm.")}
    assert called <= {"memcpy", "memmove", "memset"}, f"{called} would not be there without numba"
    _write(_file_name(llvm), machine.emit_object(whole))
