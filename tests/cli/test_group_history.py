"""`odradek groups history`, with rebalances of our own consumer."""

import asyncio
import json
import uuid
from typing import Any

from odradek.clients import Consumer
from odradek.testing import eventually


async def consume(servers: str, group: str) -> None:
    """Join and leave a group of one member."""
    async with Consumer("history", bootstrap_servers=servers, group_id=group) as consumer:
        async with asyncio.timeout(60):
            while not consumer.assignment():
                await consumer.poll(100)


def test_the_history_of_a_group_names_causes_and_durations(shell: Any) -> None:
    group = f"g-{uuid.uuid4().hex}"
    if "history" not in shell.run("topics", "list"):
        shell.run("topics", "create", "history", "--partitions", "2")
    asyncio.run(consume(shell.servers, group))

    def both() -> list[dict[str, Any]]:
        found = [json.loads(line) for line in shell.run("groups", "history", group, "--json").splitlines()]
        return found if len(found) == 2 else []

    first, last = eventually(both, what="the journal has both rebalances")
    assert (first["cause"], first["outcome"], first["generation"], first["members"]) == ("joined", "stable", 1, 1)
    assert (last["cause"], last["outcome"], last["generation"], last["members"]) == ("left", "empty", 2, 0)
    assert first["duration_ms"] >= first["join_ms"]
    table = shell.run("groups", "history", group, "--limit", "1")
    assert "left" in table
    assert "(empty)" in table
    assert len(table.splitlines()) == 2
    assert max(map(len, table.splitlines()[1].split()[:2])) <= 16  # a narrow column is folded between date and time
    assert shell.run("groups", "waiting", group).startswith(f"group {group}  state Empty  generation 2  members 0")
    waits = json.loads(shell.run("groups", "waiting", group, "--json"))
    assert (waits["group_type"], waits["epoch"], waits["members"]) == ("classic", 2, [])
    assert "--count needs --interval" in shell.run("groups", "waiting", group, "--count", "2", code=2)
    assert len(shell.run("groups", "waiting", group, "--interval", "0.1", "--count", "2").splitlines()) == 3


def test_a_group_without_a_history_and_a_wrong_limit_are_errors(shell: Any) -> None:
    assert "has no rebalance of the group nobody" in shell.run("groups", "history", "nobody", code=1)
    assert "0 is not in the range" in shell.run("groups", "history", "g", "--limit", "0", code=2)
