"""Sends keys 1, 2 and 3 to a topic of three partitions: each group receives all, each member of a group its share.

    python -m examples.keys_to_members localhost:9092

The group `single` has one member, which receives all three records. The group `shared` has three members with a
partition each. The partitioner `legacy` places the three keys on three partitions, so each member receives one record;
by murmur2, the keys 2 and 3 would share a partition (docs/producer.md).
"""

import asyncio
import sys
from contextlib import AsyncExitStack
from typing import Final

from odradek.clients import Admin, Consumer, Producer

KEYS: Final = ("1", "2", "3")
GROUPS: Final = {"single": 1, "shared": 3}
"""Group → its members."""


async def join(members: list[Consumer]) -> None:
    """Poll until each of `members`, the whole group, has its share of the partitions."""
    while any(len(member.assignment()) != len(KEYS) // len(members) for member in members):
        await asyncio.gather(*(member.poll(timeout_ms=100) for member in members))


async def receive(member: Consumer, count: int) -> list[str]:
    """Poll until `member` has received `count` records; return their keys."""
    keys: list[str] = []
    while len(keys) < count:
        keys += [(record.key or b"").decode() for record in await member.poll()]
    return keys


async def main(servers: str, topic: str = "keys") -> dict[str, list[list[str]]]:
    """Create the topic if it is new, join, send, and return the keys that each member of each group received."""
    async with Admin(servers) as admin:
        if topic not in {each.name for each in await admin.list_topics()}:
            await admin.create_topic(topic, partitions=len(KEYS))
    async with AsyncExitStack() as stack:
        groups: dict[str, list[Consumer]] = {}
        for group, size in GROUPS.items():
            members = (
                Consumer(topic, bootstrap_servers=servers, group_id=group, auto_offset_reset="earliest")
                for _ in range(size)
            )
            groups[group] = [await stack.enter_async_context(member) for member in members]
        await asyncio.gather(*map(join, groups.values()))
        async with Producer(servers, partitioner="legacy") as producer:
            for key in KEYS:
                await producer.send(topic, b"record of key " + key.encode(), key.encode())
        return {
            group: await asyncio.gather(*(receive(member, len(KEYS) // len(members)) for member in members))
            for group, members in groups.items()
        }


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    for group, received in asyncio.run(main(*sys.argv[1:])).items():
        for number, keys in enumerate(received, 1):
            print(f"group {group}, member {number}: received {', '.join(sorted(keys))}")
