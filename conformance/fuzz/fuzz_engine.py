"""The definition of a fuzz target, its run under atheris, and the share of the code that its inputs reach.

    python conformance/fuzz/fuzz_engine.py TARGET -runs=100000 -seed=1     (or: make fuzz TARGET=… RUNS=…)

libFuzzer takes over its process, and an input that kills the interpreter must not kill the tests. So `fuzz` starts
this file as a program, with a corpus made by the target's own encoders.

A fuzzer that makes no progress finds nothing and looks the same. libFuzzer's coverage is not a measure, because it
differs between runs of one seed. So `reached` measures, line by line, the code that the `examples` run, which are
always the same, and a run of libFuzzer must have executed inputs and found new coverage.
"""

import gc
import hashlib
import importlib
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
MODULES: Final = {
    "frames": "fuzz_wire",
    "headers": "fuzz_wire",
    "messages": "fuzz_messages",
    "produce_and_fetch": "fuzz_messages",
    "batches": "fuzz_batches",
    "columns": "fuzz_columns",
    "compression": "fuzz_batches",
    "group_records": "fuzz_files",
    "small_files": "fuzz_files",
    "nodes": "fuzz_files",
    "handshakes": "fuzz_handshakes",
    "fast_path": "fuzz_fast_path",
    "log_directory": "fuzz_directory",
    "requests": "fuzz_requests",
    "coordinators": "fuzz_coordinators",
}
"""Target → the module whose `TARGETS` has it."""

_UNDER_TEST: Final = {
    "columns": ("columns", "protocol.batches"),
    "fast_path": ("broker.handlers", "protocol", "wire"),
    "log_directory": ("broker.log", "protocol"),
    "coordinators": ("broker.groups.machine", "broker.transactions.machine", "protocol"),
    "requests": (
        *("broker.security", "broker.coordinators", "broker.groups", "broker.handlers", "broker.serving"),
        *("broker.transactions", "protocol", "wire"),
    ),
}
"""Target → the packages of `odradek` that atheris instruments: all of them would take up to 17 seconds."""

_CHANGES: Final = 1000
_SIZES: Final = (0, 1, 1, 4)
_SLOWEST_INPUT_S: Final = 60
_MOST_MEMORY_MB: Final = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """`check` raises if something is wrong with what the product makes of the bytes.

    `mutate(data, random)` gives another input of the same structure, or None where the bytes have none; without it
    libFuzzer's own mutations are all there is. `finish` ends what `check` keeps between two inputs. `reaches` are
    modules of the product, of which at least that share of lines (0 … 1) is run by `examples`.
    """

    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    mutate: Callable[[bytes, random.Random], bytes | None] | None = None
    finish: Callable[[], None] = lambda: None
    reaches: dict[str, float]
    runs: int = 5000
    longest: int = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run of libFuzzer: `failure` is its last words if an input broke something, else None.

    `executed` is how many inputs it tried, and `learned` how many of its own it kept because they did something new.
    `cpu_s` is its processor time, with the start.
    """

    failure: str | None
    cpu_s: float
    output: str
    inputs: list[bytes]

    @property
    def executed(self) -> int:
        return self._figure("number_of_executed_units")

    @property
    def executed_per_s(self) -> int:
        return self._figure("average_exec_per_sec")

    @property
    def learned(self) -> int:
        return self._figure("new_units_added")

    def _figure(self, name: str) -> int:
        found = re.search(rf"^stat::{name}: +(\d+)$", self.output, re.MULTILINE)
        return int(found[1]) if found else 0


def load(name: str) -> Target:
    """A target by its name."""
    target: Target = importlib.import_module(f"conformance.fuzz.{MODULES[name]}").TARGETS[name]
    return target


def _most_memory_mb() -> int:
    """Return libFuzzer's memory limit: it compares the process's peak, which on Linux starts with the parent's."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 + _MOST_MEMORY_MB


def fuzz(name: str, *, runs: int, seed: int = 1, options: Iterable[str] = ()) -> Run:
    """Let libFuzzer try `runs` inputs on a target; deterministic as far as libFuzzer is."""
    target = load(name)
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "corpus"
        corpus.mkdir()
        for data in target.seeds():
            (corpus / hashlib.sha1(data, usedforsecurity=False).hexdigest()).write_bytes(data)
        command = [
            *(sys.executable, __file__, name, str(corpus)),
            *(f"-runs={runs}", f"-seed={seed}", f"-max_len={target.longest}", f"-artifact_prefix={folder}/"),
            *(f"-timeout={_SLOWEST_INPUT_S}", f"-rss_limit_mb={_most_memory_mb()}", "-print_final_stats=1"),
            *options,
        ]
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        path = os.pathsep.join(filter(None, [str(HERE.parents[1]), *sys.path]))
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            command,
            env=environment | {"PYTHONPATH": path},
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        failure = None
        if done.returncode:
            culprits = [path.read_bytes() for path in sorted(Path(folder).iterdir()) if path.is_file()]
            failure = f"{done.stdout}\n{_without_progress(done.stderr)}\nthe input: {culprits!r}"
        kept = [path.read_bytes() for path in sorted(corpus.iterdir())]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Run(failure=failure, cpu_s=cpu_s, output=done.stderr, inputs=kept)


def _without_progress(output: str) -> str:
    return "\n".join(line for line in output.splitlines() if not line.startswith(("#", "INFO", "NEW_FUNC")))


def examples(target: Target) -> list[bytes]:
    """Its seeds, and blind changes of them and of one another; the same ones every time."""
    chance, found = random.Random(1), list(target.seeds())
    for _ in range(min(target.runs, _CHANGES)):
        data = chance.choice(found)
        found.append((_mutated(target, data, chance) or _scratched(data, chance))[: target.longest])
    return found


def _mutated(target: Target, data: bytes, chance: random.Random) -> bytes | None:
    """Changed by its own `mutate`, if it has one, and not always."""
    return target.mutate(data, chance) if target.mutate is not None and chance.random() < 0.6 else None


def _scratched(data: bytes, chance: random.Random) -> bytes:
    """A few bytes are others, more or fewer."""
    place = chance.randrange(len(data) + 1)
    return data[:place] + chance.randbytes(chance.choice(_SIZES)) + data[place + chance.choice(_SIZES) :]


def check_all(target: Target, inputs: Iterable[bytes]) -> None:
    """Check inputs one after the other."""
    try:
        for data in inputs:
            target.check(data)
    finally:
        target.finish()


def reached(target: Target, inputs: Iterable[bytes]) -> dict[str, float]:
    """The share of each module's lines, inside functions, that `check` runs when it gets these inputs."""
    modules = {name: importlib.import_module(name) for name in target.reaches}
    lines = {str(module.__file__): _function_lines(str(module.__file__)) for module in modules.values()}
    seen: dict[str, set[int]] = {path: set() for path in lines}

    def local(frame: types.FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            seen[frame.f_code.co_filename].add(frame.f_lineno)
        return local

    def enter(frame: types.FrameType, _event: str, _argument: object) -> Any:
        return local if frame.f_code.co_filename in seen else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        check_all(target, inputs)
    finally:
        sys.settrace(before)
    return {
        name: len(seen[str(module.__file__)] & lines[str(module.__file__)]) / len(lines[str(module.__file__)])
        for name, module in modules.items()
    }


def _function_lines(path: str) -> set[int]:
    """The lines of a module that run when something in it is called: not its definitions."""
    found: set[int] = set()
    waiting = [(compile(Path(path).read_text(), path, "exec"), True)]
    while waiting:
        code, is_definition = waiting.pop()
        if not is_definition:
            found |= {line for _, _, line in code.co_lines() if line and line != code.co_firstlineno}
        # A class's body runs at import, like the module's; `__qualname__` is what its code stores first.
        waiting += [
            (each, "__qualname__" in each.co_names and "__module__" in each.co_names)
            for each in code.co_consts
            if isinstance(each, types.CodeType)
        ]
    return found


def _not_instrumented(name: str) -> list[str]:
    """Return the modules that atheris leaves as they are."""
    source = HERE.parents[1] / "src"
    rooms = tuple(f"odradek.{room}." for room in _UNDER_TEST.get(name, ()))
    modules = [".".join(path.relative_to(source).with_suffix("").parts) for path in source.rglob("*.py")]
    return [module.removesuffix(".__init__") for module in modules if rooms and not module.startswith(rooms)]


def _main(name: str, flags: list[str]) -> None:
    """The program: never returns, libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=["odradek"], exclude=_not_instrumented(name)):
        target = load(name)
        decoder = importlib.import_module("odradek.protocol.messages.decoder")
    # What it compiles is most of what is to be fuzzed.
    decoder.compile = lambda source, path, mode: atheris.patch_code(  # type: ignore[attr-defined]
        compile(source, path, mode), trace_dataflow=True
    )
    gc.collect()
    gc.freeze()

    def mutate(data: bytes, longest: int, seed: int) -> bytes:
        changed = _mutated(target, data, random.Random(seed))
        return bytes(atheris.Mutate(data, longest)) if changed is None else changed[:longest]

    options = {"custom_mutator": mutate} if target.mutate is not None else {}
    atheris.Setup([name, *flags], target.check, **options)
    atheris.Fuzz()


def _command(name: str, runs: int, options: list[str]) -> None:
    run = fuzz(name, runs=runs, options=options)
    rates = f"{run.executed_per_s:,} a second, {run.executed / run.cpu_s:,.0f} a second of processor time"
    print(f"{run.executed:,} inputs, {rates}; {run.learned:,} did something new")
    if run.failure is not None:
        sys.exit(run.failure)
    # libFuzzer keeps an input for each new path, so the kept ones run what all have run.
    print("lines that the inputs of this run have reached, of each module:")
    for module, share in reached(load(name), run.inputs).items():
        print(f"{share:4.0%} of {module}")


if __name__ == "__main__":
    if sys.argv[2:3] and sys.argv[2].isdecimal():
        _command(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
    else:
        _main(sys.argv[1], sys.argv[2:])
