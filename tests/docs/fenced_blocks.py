"""The fenced blocks of README.md and docs/*.md, and how a reader runs them.

A block's language is the first word after the fence; without one, a block with commands is
`console` if they begin with `$ `, else `sh`. A
`title="…"` after the language is shown on the site. A title that begins with "not run: " says why no test runs the
block; the title of a file (TOML, JSON, Python) is its name. A block `text` with the title "prints" is what the block of
Python before it prints. A block `console` shows all that its commands print, on both outputs: if the last line is an
error, the command has to fail with it.
"""

import ast
import asyncio
import codeop
import inspect
import io
import re
import shlex
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final

import msgspec
from click.testing import CliRunner

from odradek.cli import main

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
LANGUAGES: Final = frozenset(
    {"python", "sh", "console", "toml", "yaml", "ini", "json", "text", "properties", "dockerfile", "promql", "mermaid"}
)
ADDRESS: Final = "localhost:9092"
NOT_RUN: Final = "not run: "
PRINTS: Final = "prints"
DEADLINE_S: Final = 60.0
ENDLESS: Final = re.compile(
    r"odradek (serve|up|bench|sim|groups watch|pipeline (run|check (?!--no-spark))|lab generations)"
)
"""Commands that run until Ctrl-C, need Spark, or take minutes: only their options are checked here."""
COMPARED_ELSEWHERE: Final = {
    "rebalancing.md": "tests/lab/pages.py",
}
"""Pages that show what such a command prints → what compares it, or writes it anew (`make docs`)."""
_ERROR: Final = re.compile(r"^(odradek|Error): .*\Z", re.MULTILINE)
"""The last line of what a command prints that fails."""
OF_A_CLUSTER: Final = re.compile(r"odradek (topics|groups (?!tree)|configs|partitions|brokers|produce|consume|quotas)")
"""Commands that connect to `localhost:9092` by default: here, to the broker of the test."""

_FENCE: Final = re.compile(r'^```(\w*)(?: title="([^"]*)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
_COMMAND: Final = re.compile(
    r"^(\$ )?(?:odradek|pip|python|make|kill|curl|podman|docker|kubectl|systemctl|sudo) ", re.MULTILINE
)
_KINDS: Final = ("sh", "console")


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One fenced block; `line` is the number of its fence."""

    page: Path
    line: int
    language: str
    title: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page}:{self.line}"

    @property
    def is_run(self) -> bool:
        """Whether the block has no reason for not being run."""
        return not self.title.startswith(NOT_RUN)

    @property
    def is_test(self) -> bool:
        """Whether the block is a file of tests for pytest."""
        return self.language == "python" and "\ndef test_" in self.text.replace("\nasync def", "\ndef")

    @property
    def needs_spark(self) -> bool:
        """Whether the block is about a Spark session: the tests of Spark run it."""
        return self.language == "python" and (self.page.name.startswith("spark") or "spark" in self.text)


def examples(page: str | Path, language: str | None = None) -> list[Example]:
    """Return the blocks of a page, a name in `docs` or a path, in order; by default of every language."""
    path = ROOT / "docs" / page
    text = path.read_text()
    found = []
    for match in _FENCE.finditer(text):
        kind = match[1] or next((_KINDS[bool(line[1])] for line in _COMMAND.finditer(match[3])), "text")
        line = text.count("\n", 0, match.start()) + 1
        found.append(Example(page=path, line=line, language=kind, title=match[2] or "", text=match[3]))
    assert len(found) * 2 == len(re.findall(r"^```", text, re.MULTILINE)), f"{path.name} has a fence of another form"
    return [example for example in found if language in (None, example.language)]


def blocks(page: str | Path, language: str) -> list[str]:
    """Return the texts of a page's blocks in a language."""
    return [example.text for example in examples(page, language)]


def run_python(example: Example, servers: str) -> str:
    """Run a block as a file, or paste it into `python -m asyncio` if it awaits; then again as a notebook's cell.

    Return what the first run printed.
    """
    code = example.text.replace(ADDRESS, servers)
    awaits = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    compiled = compile(code, str(example), "exec", flags=awaits)
    is_coroutine = bool(compiled.co_flags & inspect.CO_COROUTINE)
    with redirect_stdout(io.StringIO()) as printed:
        if is_coroutine:
            asyncio.run(asyncio.wait_for(_paste(code), DEADLINE_S))
        else:
            exec(compiled, {"__name__": "__main__"})
    assert "<Future" not in printed.getvalue(), f"{example}: the console shows a future: give it a name"

    async def cell() -> None:
        result = eval(compiled, {"__name__": "__main__"})
        if is_coroutine:
            await asyncio.wait_for(result, DEADLINE_S)

    with redirect_stdout(io.StringIO()):
        asyncio.run(cell())
    return printed.getvalue()


def check_printed(example: Example, printed: str) -> None:
    """Raise `AssertionError` if a block "prints" is not what was printed; any time in ms since 1970 will do."""
    shown, real = (re.sub(r"\b1\d{12}\b", "TIME", text.strip()) for text in (example.text, printed))
    assert real == shown, f"{example}: printed is\n{real}"


async def _paste(code: str) -> None:
    """Run lines as Python's interactive console does: an empty line ends a block, anything else there is an error."""
    compiler, names, lines = codeop.CommandCompiler(), dict[str, Any](), list[str]()
    compiler.compiler.flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
    for line in [*code.splitlines(), ""]:
        lines.append(line)
        if (compiled := compiler("\n".join(lines), "<console>", "single")) is not None:
            lines.clear()
            result = eval(compiled, names)
            if compiled.co_flags & inspect.CO_COROUTINE:
                await result
    assert not lines


def shell_steps(example: Example) -> Iterator[tuple[str, str]]:
    """Yield each command of a block, and the output that stands below it in a block of the language `console`."""
    if example.language == "sh":
        yield from ((line, "") for line in example.text.replace("\\\n", "").splitlines())
        return
    for step in re.split(r"\n(?=\$ )", example.text.rstrip()):
        command, _, output = step.partition("\n")
        yield command.removeprefix("$ "), output.rstrip()


def run_shell(example: Example, servers: str) -> None:
    """Run a block's commands of `odradek` in this directory; of `pip` and `make`, check what they name."""
    for command, expected in shell_steps(example):
        where = f"{example}: {command}"
        match shlex.split(command.replace(ADDRESS, servers), comments=True):
            case []:
                pass
            case ["odradek", *arguments]:
                endless = ENDLESS.match(command)
                more = ["--help"] if endless else ["-b", servers] if OF_A_CLUSTER.match(command) else []
                result = CliRunner().invoke(main, [*arguments, *more], prog_name="odradek", catch_exceptions=False)
                fails = bool(_ERROR.search(expected)) and not endless
                assert (result.exit_code != 0) == fails, f"{where}\n{result.output}"
                if example.language == "console" and not endless:
                    assert result.output.rstrip() == expected.replace(ADDRESS, servers), where
            case ["python3", "-m", "venv", *_]:
                pass
            case ["pip", "install", *packages]:
                _check_extras(packages, where)
            case ["make", target, *_]:
                assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE), where
            case _:
                raise AssertionError(f'{where}: write title="{NOT_RUN}…" with the reason after the language')


def _check_extras(packages: list[str], where: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for package in packages:
        name, _, extras = package.rstrip("]").partition("[")
        for extra in extras.split(",") if extras and name in (".", "odradek") else ():
            assert extra in project["optional-dependencies"], where
        assert name != "odradek" or "odradek[" in package, f"{where}: in Odradek's folder it is called '.'"
