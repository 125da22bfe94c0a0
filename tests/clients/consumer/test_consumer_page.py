"""docs/consumer.md: its examples run as they are printed, its tables say what the code does (M6, M12)."""

import re
from pathlib import Path
from typing import Any

import pytest

from odradek.clients import Consumer
from odradek.simulation.world import World
from tests.clients.scenarios import create
from tests.docs.fenced_blocks import blocks
from tests.world.scenes import played_by

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "consumer.md").read_text()


def example(word: str) -> dict[str, Any]:
    """The names that the example with this word defines."""
    (code,) = (block for block in blocks("consumer.md", "python") if word in block)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/consumer.md", "exec"), names)
    return names


def section(title: str) -> list[list[str]]:
    """The rows of a section's table, without its head."""
    text = PAGE[PAGE.index(f"## {title}\n") :]
    text = text[: text.find("\n## ", 1)]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"][2:]


def play(seed: int, scene: Any) -> None:
    async def scenario(world: World) -> None:
        await create(world, "flights", partitions=2)
        async with world.producer("writer") as producer:
            for number in range(4):
                await producer.send("flights", b"%d" % number, key=b"k", partition=number % 2)
        await scene(world)

    World(seed).play(scenario)


def ours(world: World) -> Any:
    """`Consumer` on a host of the world."""
    return lambda *topics, bootstrap_servers, **settings: world.consumer("reader", *topics, **settings)


def test_the_first_example_prints_a_record(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    async def scene(world: World) -> None:
        names = example("async def read")
        names["Consumer"] = ours(world)
        await names["read"](world.servers)

    play(seed, scene)
    assert re.fullmatch(r"flights [01] 0 b'[01]'\n", capsys.readouterr().out)


@played_by(play)
async def test_the_arrow_example_counts_all_records(world: World) -> None:
    names = example("async def total")
    names["Consumer"] = ours(world)
    assert await names["total"](world.servers) == 4


@played_by(play)
async def test_the_interceptor_counts_records_and_keeps_commits(world: World) -> None:
    names = example("class Audit")
    names["Consumer"] = ours(world)
    audit = names["Audit"]()
    async with names["audited"](world.servers, audit, group_id="g") as consumer:
        found = []
        while len(found) < 4:
            found += await consumer.poll()
        await consumer.commit()
    assert sorted(record.value for record in found) == [0, 1, 2, 3]
    assert {record.key for record in found} == {"k"}
    assert audit.returned == 4
    assert sum(offset.offset for offset in audit.committed.values()) == 4


def test_the_table_of_metrics_names_all_of_them() -> None:
    names = {name for row in section("Metrics") for name in re.findall(r"`(\w+)`", row[0])}
    assert names == set(Consumer().metrics())
