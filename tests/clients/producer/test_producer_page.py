"""The examples of docs/producer.md run as they are printed (M2)."""

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

import odradek.partitioners
from odradek.clients import Producer
from odradek.partitioners import create_partitioner
from odradek.simulation.world import World
from tests.docs.fenced_blocks import blocks
from tests.world.scenes import in_world

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "producer.md").read_text()


def example(word: str) -> dict[str, Any]:
    """The names that the example with this word defines."""
    (code,) = (block for block in blocks("producer.md", "python") if word in block)
    names: dict[str, Any] = {}
    exec(compile(code, "docs/producer.md", "exec"), names)
    return names


async def create(world: World, partitions: int) -> None:
    await world.create_topic("flights", partitions)


def test_the_first_example_prints_an_offset(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    async def scene(world: World) -> None:
        names = example("async def write(")
        names["Producer"] = lambda servers, **settings: world.producer("client", **settings)
        await names["write"](world.servers)

    World(seed).play(scene)
    assert capsys.readouterr().out == "0\n"


@in_world()
async def test_the_partitioner_keeps_the_first_partition_for_urgent_records(world: World) -> None:
    make = example("class UrgentFirst")["UrgentFirst"]
    await create(world, 4)
    async with world.producer("client", partitioner=make()) as producer:
        for number in range(40):
            await producer.send("flights", b"%d" % number, b"urgent" if number % 4 == 0 else b"%d" % number)
    found = await world.read("flights", 4)
    assert found[0] == [b"%d" % number for number in range(0, 40, 4)]
    assert all(found.values())


def test_the_partitioner_can_be_chosen_by_its_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(odradek.partitioners, "UrgentFirst", example("class UrgentFirst")["UrgentFirst"], raising=False)
    made = create_partitioner("odradek.partitioners:UrgentFirst", entropy=Random(), monotonic=lambda: 0.0)
    assert type(made).__name__ == "UrgentFirst"


def test_the_table_is_written(seed: int, capsys: pytest.CaptureFixture[str]) -> None:
    async def scene(world: World) -> None:
        await create(world, 1)
        async with world.producer("client") as producer:
            await example("async def write_table")["write_table"](producer)
        assert await world.read("flights", 1) == {0: [b"{}", b"[]", b"late"]}

    World(seed).play(scene)
    assert capsys.readouterr().out == "flights-0 [0, 1, 2] [0, 1, 2]\n"


@in_world()
async def test_the_interceptor_counts_and_adds_a_header(world: World) -> None:
    names = example("class Audit")
    await create(world, 1)
    audit = names["Audit"]()
    producer: Producer = names["audited"](world.servers, audit, runtime=world.simulation.runtime("client"))
    async with producer:
        await producer.send("flights", {"a": 1}, "key")
    (record,) = (await world.read_records("flights", 1))[0]
    assert (record.key, record.value, record.headers) == (b"key", b'{"a": 1}', (("audited", b"yes"),))
    assert (audit.delivered, audit.failed) == (1, 0)


def test_the_table_of_metrics_names_all_of_them() -> None:
    table = PAGE[PAGE.index("## Metrics") : PAGE.index("## Configuration")]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert {name for row in rows for name in re.findall(r"`(\w+)`", row)} == set(Producer("localhost:1").metrics())
