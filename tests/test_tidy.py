"""The house's rules that no linter knows: lengths, documentation, where the outside is touched, tests that assert.

Each exception is named with its reason, and one that is no longer needed is a failure too.
"""

import ast
import gc
import importlib
import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Final

import pytest

from tests.docs.public_names import FACES

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = sorted(
    path for folder in ("src", "demo", "bench", "examples") for path in (ROOT / folder).rglob("*.py")
)
TESTS: Final = sorted(
    [ROOT / "conftest.py", *(path for folder in ("tests", "conformance") for path in (ROOT / folder).rglob("*.py"))]
)
ROOMS: Final = sorted(path for folder in ("src/odradek", "bench") for path in (ROOT / folder).rglob("*.py"))

MOST_LINES_IN_A_FILE: Final = 700
MOST_LINES_IN_A_FUNCTION: Final = 70

LONG_FILES: Final[dict[str, str]] = {}
"""Path → why it is better whole."""

LONG_FUNCTIONS: Final[dict[str, str]] = {}
"""Path:name → why it is better whole."""

OUTSIDE: Final = frozenset({"os", "random", "secrets", "select", "signal", "socket", "subprocess", "threading", "time"})
"""The clock, chance, files, the network, other processes. The type `random.Random` is free: a seed may fill it."""

OUTSIDE_ROOMS: Final = ("runtime", "stores", "spark")
"""The rooms that may touch them (docs/architecture.md)."""

REAL_ROOMS: Final = (
    "cli",
    "lab",
    "page",
    "pipelines",
    "supervisor",
    "testing/in_process",
    "testing/servers",
    "texts",
    "values",
)
"""The rooms that no simulation plays: they may call what `CALLS_OUTSIDE` lists."""

OUTSIDE_ALLOWED: Final[dict[str, str]] = {
    "clients/blocking/loop_thread.py": "a thread for the loop of blocking clients, which refuse to work after a fork",
    "cli/__init__.py": "a broken pipe and Ctrl-C end a command, and only its process has those",
    "cli/log_lines.py": "what nobody catches on a thread is an entry of the log, too",
    "kernels/__init__.py": "loads the library beside it, and compares it with its source",
    "config/load.py": "reads a file of properties, before there is a runtime",
    "config/secrets.py": "environment variables may have the passwords of clients",
    "cli/profiles.py": "environment variables name the cluster that a command asks",
    "cli/process.py": "a command ends on signals, and asks what its standard input is",
    "cli/serve.py": "a server ends on signals, and says which process it is",
    "cli/sim/mistakes.py": "plays seeds on a changed copy of the source tree in processes",
    "cli/sim/table.py": "asks git for the commit of the source tree",
    "cli/up.py": "a supervisor ends on signals",
    "supervisor/supervisor.py": "starts and ends brokers",
    "bench/": "measures real processes by the real clock",
    "testing/in_process/broker_thread.py": "a thread for each broker's loop, beside blocking clients",
    "testing/in_process/token_issuer.py": "a thread for the HTTP endpoint, beside blocking clients",
    "testing/in_process/cut_network.py": "a lock: the threads of several brokers ask what is cut",
    "testing/in_process/request_faults.py": "a lock: the threads of several brokers use up one rule",
    "testing/in_process/cluster.py": "its calls have limits of real time",
    "simulation/coverage.py": "reads the source for the names of probes",
    "testing/conditions.py": "waits for other processes, which live in real time",
    "testing/machine_clock.py": "the names of the C library's clocks",
    "testing/servers/ports.py": "asks which ports are free, and draws one",
    "testing/servers/odradek_process.py": "kills a broker that a supervisor started",
    "testing/servers/server_process.py": "starts and kills servers",
    "simulation/wire_client.py": "one of its two clients blocks on a socket",
    "testing/servers/zookeeper.py": "looks for a ZooKeeper, and asks it whether it serves",
    "simulation/virtual/disk.py": "os.strerror: the texts of error numbers",
    "broker/observing/monitor.py": "renders the page for Prometheus on a thread",
    "lab/lessons/custom.py": "shows how a user writes an assignor that draws",
    "broker/log/directories/log_checkpoints.py": "a lock: a newer state may have to be written while an older one is",
    "broker/log/directories/loading_progress.py": "a lock: the threads of the disk tell it how far they are",
}
"""File or folder → why it may, too."""


STANDARD_DATACLASSES: Final = {
    *(
        f"config/{name}.py"
        for name in ("broker", "definition", "group", "network", "security", "topic", "transactions", "zookeeper")
    ),
    "clients/settings.py",
    *(f"clients/{name}/settings.py" for name in ("consumer", "producer", "zookeeper_consumer")),
    "spark/settings.py",
    *(f"protocol/internal_records/{name}.py" for name in ("group_records", "transaction_records")),
    "protocol/messages/controller_messages.py",
    *(
        f"protocol/messages/newer/{name}.py"
        for name in ("api_versions", "delete_groups", "txn_offset_commit", "unregister_controller")
    ),
}
"""Their fields have metadata: a key's definition, or a type of the protocol."""


def _name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def _room(path: Path) -> str:
    """Return the path inside `src/odradek`, or else inside the source tree."""
    return _name(path).removeprefix("src/odradek/")


@cache
def _nodes(path: Path) -> Sequence[ast.AST]:
    """Return all nodes of a file's syntax tree, the module first."""
    # Collections of garbage would take most of the time: none while trees are made, and none of them later.
    gc.disable()
    try:
        return tuple(ast.walk(ast.parse(path.read_text(), str(path))))
    finally:
        gc.freeze()
        gc.enable()


def _tree(path: Path) -> ast.Module:
    module = _nodes(path)[0]
    assert isinstance(module, ast.Module)
    return module


def _functions(nodes: Iterable[ast.AST]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return (node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def _dotted(node: ast.AST) -> str:
    """`a.b.c` of an attribute or a name; the empty string for anything else."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}".lstrip(".")
    return node.id if isinstance(node, ast.Name) else ""


def _report(found: list[str], rule: str) -> None:
    assert not found, f"{rule}:\n  " + "\n  ".join(found)


# ---- lengths --------------------------------------------------------------------------------------------------------


def test_files_are_short_enough_to_be_read_at_once():
    long = {
        _name(path): length
        for path in SOURCES + TESTS
        if (length := len(path.read_text().splitlines())) > MOST_LINES_IN_A_FILE
    }
    _report(
        [f"{name}: {long[name]} lines" for name in long.keys() - LONG_FILES.keys()],
        f"files over {MOST_LINES_IN_A_FILE} lines",
    )
    _report(sorted(LONG_FILES.keys() - long.keys()), "exceptions that are no longer needed")


def test_functions_are_short_enough_to_be_seen_at_once():
    long = {
        f"{_name(path)}:{function.name}": length
        for path in SOURCES
        for function in _functions(_nodes(path))
        if (length := (function.end_lineno or 0) - function.lineno + 1) > MOST_LINES_IN_A_FUNCTION
    }
    _report([f"{name}: {long[name]} lines" for name in long.keys() - LONG_FUNCTIONS.keys()], "functions over 70 lines")
    _report(sorted(LONG_FUNCTIONS.keys() - long.keys()), "exceptions that are no longer needed")


# ---- documentation --------------------------------------------------------------------------------------------------


def _undocumented(path: Path) -> Iterator[str]:
    """Yield the module and its public classes without a docstring."""
    pending: list[tuple[str, ast.Module | ast.ClassDef]] = [("the module", _tree(path))]
    while pending:
        name, parent = pending.pop()
        if not ast.get_docstring(parent):
            yield f"{_name(path)}: {name}"
        pending += [
            (each.name, each)
            for each in ast.iter_child_nodes(parent)
            if isinstance(each, ast.ClassDef) and not each.name.startswith("_")
        ]


def _undocumented_in(face: str) -> Iterator[str]:
    """Yield the functions and methods without a docstring, of their own or inherited, that a face exports."""
    module = importlib.import_module(f"odradek.{face}")
    for value in (getattr(module, name) for name in module.__all__):
        if inspect.isfunction(value) and not inspect.getdoc(value):
            yield f"odradek.{face}: {value.__name__}"
        if inspect.isclass(value) and value.__module__.startswith("odradek."):
            for name, member in vars(value).items():
                is_method = isinstance(member, FunctionType | classmethod | property | staticmethod)
                is_told = name.startswith("_") or name in _documented_in_protocols()
                if is_method and not is_told and not inspect.getdoc(getattr(value, name)):
                    yield f"odradek.{face}: {value.__name__}.{name}"


@cache
def _documented_in_protocols() -> frozenset[str]:
    """Return the names of methods that a protocol documents: an implementation needs no docstring."""
    return frozenset(
        function.name
        for path in SOURCES
        for each in _nodes(path)
        if isinstance(each, ast.ClassDef)
        and any(_dotted(getattr(base, "value", base)).endswith("Protocol") for base in each.bases)
        for function in _functions(each.body)
        if ast.get_docstring(function)
    )


HEADLESS: Final = re.compile(
    r"(?:^|[.:;!] |\n\n)(?:Who|Whoever|Whose|Nobody|What)\b[^.?]*?[.:,;]|(?:^|\n\n)(?:The same,|See )"
)
"""A sentence without a noun for its subject (STYLE, Plain English); questions are not meant."""


def test_sentences_have_a_subject():
    found = []
    for path in ROOMS + TESTS:
        texts = [(node.lineno, text) for node, text in _docstrings(_nodes(path)) if HEADLESS.search(text)]
        found += [f"{_name(path)}:{line} {text.splitlines()[0]}" for line, text in texts]
    _report(found, "sentences that begin with Who, Whoever, Whose, Nobody, What, or point at another text")


def _docstrings(nodes: Iterable[ast.AST]) -> Iterator[tuple[ast.Expr, str]]:
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node, inspect.cleandoc(node.value.value)


def test_everything_public_says_what_it_is():
    _report([thing for path in SOURCES for thing in _undocumented(path)], "modules and classes without a docstring")
    _report([thing for face in FACES for thing in _undocumented_in(face)], "public methods without a docstring")


def test_nothing_is_left_to_do():
    wanted = re.compile(r"\b(TODO|FIXME|XXX)\b|\bNotImplementedError\b")
    found = [
        f"{_name(path)}:{number} {line.strip()}"
        for path in SOURCES + [path for path in TESTS if path.name != "test_tidy.py"]
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if wanted.search(line)
    ]
    _report(found, "unfinished things")


# ---- the outside ----------------------------------------------------------------------------------------------------


def _outside_imports(path: Path) -> set[str]:
    used: set[str] = set()
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            used |= {alias.name.partition(".")[0] for alias in node.names} & OUTSIDE
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            module = node.module.partition(".")[0]
            if module in OUTSIDE and not (module == "random" and {alias.name for alias in node.names} == {"Random"}):
                used.add(module)
    attributes = {_dotted(node) for node in _nodes(path) if isinstance(node, ast.Attribute)}
    if "random" in used and {name for name in attributes if name.startswith("random.")} == {"random.Random"}:
        used.discard("random")
    return used


def _outside_reason(path: Path) -> str | None:
    """Return the room or the line of `OUTSIDE_ALLOWED` that allows a file to touch the outside."""
    return next((allowed for allowed in (*OUTSIDE_ROOMS, *OUTSIDE_ALLOWED) if _room(path).startswith(allowed)), None)


CLOCKS_AND_IDS: Final = re.compile(r"(datetime|date|datetime\.datetime)\.(now|utcnow|today)|uuid\.uuid[14]")
CALLS_OUTSIDE: Final = re.compile(
    r"open|.*\.(read_text|write_text|read_bytes|write_bytes|iterdir|rglob|run_in_executor|to_thread|default_rng"
    r"|create_connection|create_server|create_datagram_endpoint|getaddrinfo)"
    r"|asyncio\.(open_\w*connection|start_\w*server|create_subprocess_\w+)"
)
"""Calls that reach files, chance, the network or a thread without an import of `OUTSIDE`."""


def _outside_calls(path: Path) -> set[str]:
    calls = [node.func for node in _nodes(path) if isinstance(node, ast.Call)]
    names = {
        f"{_dotted(each.value)}.{each.attr}" if isinstance(each, ast.Attribute) else _dotted(each) for each in calls
    }
    is_real = _room(path).startswith(REAL_ROOMS)
    return {name for name in names if CLOCKS_AND_IDS.fullmatch(name) or (not is_real and CALLS_OUTSIDE.fullmatch(name))}


def test_only_named_places_touch_the_clock_chance_the_disk_and_the_network():
    touching = {path: used for path in ROOMS if (used := sorted(_outside_imports(path) | _outside_calls(path)))}
    unnamed = [f"{_name(path)}: {', '.join(used)}" for path, used in touching.items() if not _outside_reason(path)]
    _report(unnamed, "imports and calls that no seed can replace")
    _report(
        sorted(OUTSIDE_ALLOWED.keys() - set(map(_outside_reason, touching))), "exceptions that are no longer needed"
    )


def test_an_exception_of_any_kind_is_caught_only_where_it_is_logged_raised_again_or_kept():
    heard = {"call_exception_handler", "critical", "error", "exception", "set_exception", "warning"}
    found = []
    for path in ROOMS:
        for node in _nodes(path):
            if not isinstance(node, ast.ExceptHandler):
                continue
            broad = node.type is None or _dotted(node.type) in {"Exception", "BaseException"}
            inside = [inner for statement in node.body for inner in ast.walk(statement)]
            calls = {inner.func.attr for inner in inside if isinstance(inner, ast.Call) and _is_method(inner)}
            is_kept = any(_has_value(inner, node.name) for inner in inside)
            if broad and not calls & heard and not is_kept and not any(isinstance(each, ast.Raise) for each in inside):
                found.append(f"{_name(path)}:{node.lineno}")
    _report(found, "broad excepts that swallow")


def _has_value(statement: ast.AST, name: str | None) -> bool:
    """Whether it returns the variable `name`, or assigns it to something."""
    value = statement.value if isinstance(statement, ast.Return | ast.Assign) else None
    return value is not None and any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(value))


def _is_method(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute)


# ---- the start ------------------------------------------------------------------------------------------------------


def test_values_are_structs_where_no_field_has_metadata():
    standard = {
        _room(path)
        for path in ROOMS
        for node in _nodes(path)
        if isinstance(node, ast.ImportFrom) and node.module == "dataclasses"
        if "dataclass" in {alias.name for alias in node.names}
    }
    _report(sorted(standard - STANDARD_DATACLASSES), "values derive from msgspec.Struct (decision 15)")
    _report(sorted(STANDARD_DATACLASSES - standard), "exceptions that are no longer needed")


# ---- tests ----------------------------------------------------------------------------------------------------------


def _asserts(function: ast.AST, helpers: set[str]) -> bool:
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call):
            last = _dotted(node.func).rpartition(".")[2]
            if (
                last in helpers
                or last in {"raises", "warns"}
                or last.startswith(("assert_", "check", "expect", "verify"))
            ):
                return True
    return False


def test_every_test_asserts_something():
    found = []
    for path in TESTS:
        functions = list(_functions(_nodes(path)))
        helpers: set[str] = set()
        while more := {one.name for one in functions if one.name not in helpers and _asserts(one, helpers)}:
            helpers |= more
        found += [
            f"{_name(path)} {one.name}" for one in functions if one.name.startswith("test_") and one.name not in helpers
        ]
    _report(found, "tests that assert nothing")


def _is_virtual(path: Path) -> bool:
    """Whether the tests of a file run on the virtual loop, where a sleep takes no time: it or its fixtures name it."""
    sources = [path, *(folder / "conftest.py" for folder in path.parents if folder.is_relative_to(ROOT))]
    virtual = re.compile(r"\b(Simulation|VirtualLoop|odradek\.simulation\.world)\b")
    return any(virtual.search(each.read_text()) for each in sources if each.exists())


def test_tests_wait_for_conditions_and_never_for_the_wall_clock():
    asking = re.compile(
        r"\btime\.(sleep|time|time_ns|monotonic|perf_counter)\(|\bdatetime\.(now|utcnow|today)\(|\bfrom time import\b"
    )
    sleeping = re.compile(r"\basyncio\.sleep\((?!0\))")
    found = []
    for path in TESTS:
        text = path.read_text()
        virtual = _is_virtual(path)
        found += [
            f"{_name(path)}:{number} {line.strip()}"
            for number, line in enumerate(text.splitlines(), 1)
            if path.name != "test_tidy.py" and (asking.search(line) or (sleeping.search(line) and not virtual))
        ]
    _report(found, "tests that take real time")


UNCLEAR_TEST_NAME: Final = re.compile(
    r"test_(who|what|it)_|\w*_(nobody|somebody|everybody|whoever)(_|$)"
    r"|\w*_(told|tells?|wish\w*|obey\w*|hears?|heard|asks?|asked|believ\w*|wants|learns?)(_|$)"
)
"""A name without a subject, or with a verb of people where a machine sends, returns, requests or receives."""


def test_names_of_tests_have_a_subject_and_say_what_machines_do():
    found = [
        f"{_name(path)}:{function.lineno} {function.name}"
        for path in TESTS
        for function in _functions(_nodes(path))
        if function.name.startswith("test_") and UNCLEAR_TEST_NAME.match(function.name)
    ]
    _report(found, "names of tests without a subject, or with verbs of people (told, asked, wish, hear, …)")


# ---- these checks themselves ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "asserts"),
    [
        ("def test_a():\n    assert 1", True),
        ("def test_a():\n    with pytest.raises(ValueError): f()", True),
        ("def test_a():\n    f()", False),
    ],
)
def test_an_assertion_is_recognised(code: str, asserts: bool):
    assert _asserts(ast.parse(code), set()) is asserts


@pytest.mark.parametrize(
    ("code", "used"),
    [
        ("import time", {"time"}),
        ("from os import path", {"os"}),
        ("import random\nx: random.Random", set()),
        ("import random\nx = random.random()", {"random"}),
        ("import json", set()),
    ],
)
def test_an_import_of_the_outside_is_recognised(code: str, used: set[str], tmp_path: Path):
    path = tmp_path / "module.py"
    path.write_text(code)
    assert _outside_imports(path) == used


@pytest.mark.parametrize(
    ("code", "used"),
    [
        ("with open('x'): loop.run_in_executor(None, f)", {"open", "loop.run_in_executor"}),
        ("Path(place).read_text(); datetime.now()", {".read_text", "datetime.now"}),
        ("disk.open('x'); Log.open(y); read_text(z)", set()),
    ],
)
def test_a_call_of_the_outside_is_recognised(
    code: str, used: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    path = tmp_path / "module.py"
    path.write_text(code)
    assert _outside_calls(path) == used


@pytest.mark.parametrize(
    ("name", "is_unclear"),
    [
        ("test_what_was_set_holds", True),
        ("test_nobody_waits", True),
        ("test_a_follower_is_told_the_high_watermark", True),
        ("test_a_deletion_was_wished_for", True),
        ("test_a_closed_connection_hears_nothing", True),
        ("test_a_coordinator_answers_heartbeats", False),
        ("test_only_what_is_written_is_read", False),
    ],
)
def test_an_unclear_name_of_a_test_is_recognised(name: str, is_unclear: bool):
    assert (UNCLEAR_TEST_NAME.match(name) is not None) is is_unclear
