"""The commands and examples of the README work, and its statements are true."""

import ast
import asyncio
import inspect
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from existing_clients import DEADLINE_S

README = (Path(__file__).parents[2] / "README.md").read_text()


def blocks(language: str, page: str = README) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


async def run(code: str) -> dict[str, Any]:
    """Run code that awaits at its top level, as `python -m asyncio` does."""
    names: dict[str, Any] = {}
    compiled = compile(code, "README.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(compiled, names)
    if inspect.isawaitable(result):
        await asyncio.wait_for(result, DEADLINE_S)
    return names


def test_the_python_example_prints_what_it_wrote(servers: str, capsys: pytest.CaptureFixture[str]):
    examples = blocks("python")
    assert len(examples) == 2
    for example in examples:
        assert "localhost:9092" in example
        assert len(example.splitlines()) <= 6
        asyncio.run(run(example.replace("localhost:9092", servers)))
        assert "hello" in capsys.readouterr().out


def test_the_examples_of_the_page_about_clients_run(servers: str, capsys: pytest.CaptureFixture[str]):
    """Each of the three ways to use a client, in the fewest lines."""
    page = (Path(__file__).parents[2] / "docs/clients.md").read_text()
    examples = blocks("python", page)
    assert len(examples) == 3
    for example in examples:
        asyncio.run(run(example.replace("localhost:9092", servers).replace("greetings", "documented")))
        assert "hello" in capsys.readouterr().out or "offset" in example


@pytest.mark.parametrize("package", ["confluent-kafka", "kafka-python", "aiokafka", "pyspark"])
def test_the_table_of_clients_has_the_versions_that_are_tested(package: str):
    assert re.search(rf"\| {package} [^|]*\| {re.escape(version(package))} ", README)


def test_the_page_is_short():
    assert len(README.splitlines()) < 90
