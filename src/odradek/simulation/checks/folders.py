"""The check that each broker has the folders of the replicas that the tree gives it, and no others.

All faults and clients have ended; deleted logs are removed only some time later. Where faults damaged files, folders
that brokers keep as `-stray` do not count.
"""

from contextlib import suppress

from odradek.metadata import paths
from odradek.metadata.nodes import TopicNode
from odradek.simulation.promises import PATIENCE_S
from odradek.simulation.world import World, until


async def tidied(world: World, *, with_strays: bool) -> list[str]:
    """Let virtual time pass until brokers have the right folders, and return those that they never have or lose."""
    with suppress(TimeoutError):
        await until(lambda: _wanted(world) == _there(world, with_strays=with_strays), within_s=PATIENCE_S, each_s=1.0)
    wanted, there = _wanted(world), _there(world, with_strays=with_strays)
    lacking = [f"broker {number} lacks the folder {name}" for number, name in sorted(wanted - there)]
    return lacking + [f"broker {number} still has the folder {name}" for number, name in sorted(there - wanted)]


def _wanted(world: World) -> set[tuple[int, str]]:
    found = set()
    for topic in world.tree.names(paths.TOPICS):
        record = world.tree.find(path := paths.topic(topic))
        if record is not None:
            for number, replicas in TopicNode.decode(path, record.data).replicas.items():
                found |= {(replica, f"{topic}-{number}") for replica in replicas}
    return found


def _there(world: World, *, with_strays: bool) -> set[tuple[int, str]]:
    found = set()
    for number, broker in world.running.items():
        disk = world.simulation.disk(world.hosts[number])
        for directory in broker.config.log_dirs:
            names = [name for name in disk.list(directory) if disk.is_directory(f"{directory}/{name}")]
            found |= {(number, name) for name in names if with_strays or not name.endswith("-stray")}
    return found
