"""Checks that all brokers know the content of the tree and act on it, so that a lost update is found."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

from odradek.broker.lifecycle import Broker
from odradek.broker.log.log_config import TopicLogConfigs
from odradek.metadata.image import NO_CONTROLLER, ClusterImage
from odradek.metadata.tree_watchers import ControllerTreeWatcher
from odradek.model import TopicPartition
from odradek.simulation.promises import BrokenPromiseError
from odradek.simulation.world import World
from odradek.stores import MemoryStore

_EQUAL: Final = (
    "brokers", "broker_configs", "group_configs", "user_configs", "quota_configs", "acls", "features"
)  # fmt: skip
"""The parts of a broker's image that must be equal to the tree's content."""


async def agreed(world: World, *, within_s: float) -> None:
    """Let virtual time pass until all brokers agree. Raise `BrokenPromiseError` with a disagreement."""
    problem, tool = "", MemoryStore(world.tree)
    try:
        async with asyncio.timeout(within_s):
            while problem := await _disagreement(world, tool):  # noqa: ASYNC110 - virtual time: any condition will do
                await asyncio.sleep(0.5)
    except TimeoutError:
        raise BrokenPromiseError(f"the brokers do not agree with the tree: {problem}") from None


async def _disagreement(world: World, tool: MemoryStore) -> str:
    has_acls = any(broker.authorizer is not None for broker in world.running.values())
    reader = ControllerTreeWatcher(tool, wake=lambda: None, deletes=False, reads_acls=has_acls)
    wanted = await reader.refresh(ClusterImage())
    reader.stop()
    if wanted.controller_id == NO_CONTROLLER:
        return "there is no controller"
    for number, broker in world.running.items():
        for sentence in _disagreements_of(broker, wanted):
            return f"broker {number} {sentence}"
    return ""


def _disagreements_of(broker: Broker, wanted: ClusterImage) -> Iterator[str]:
    me, image, controller_id, topics = broker.broker_id, broker.image, wanted.controller_id, wanted.topics
    if broker.fence.is_closed:
        yield "is fenced"
    if broker.metadata_loop.is_controller != (me == controller_id) or image.controller_id != controller_id:
        yield f"takes {image.controller_id} for the controller, and not {controller_id}"
    for part in _EQUAL:
        if (known := getattr(image, part)) != (stored := getattr(wanted, part)):
            yield f"knows the {part.replace('_', ' ')} {_only(known, stored)}, and not {_only(stored, known)}"
    if image.topics.keys() != topics.keys():
        yield f"knows the topics {list(image.topics)}, and not {list(topics)}"
        return
    for name, topic in topics.items():
        if any(me in each.replicas for each in topic.partitions.values()) and image.topics[name].config != topic.config:
            yield f"knows the configuration {image.topics[name].config} of {name}, and not {topic.config}"
        config = TopicLogConfigs().of(name, topic, broker.config)
        for number, state in topic.partitions.items():
            mine = image.topics[name].partitions.get(number)
            if mine is None or (mine.state_version, mine.replicas) != (state.state_version, state.replicas):
                yield f"knows the state {mine} of {name}-{number}, and not {state}"
            place = TopicPartition(name, number)
            if (log := broker.logs.get(place)) is not None and log.config != config:
                yield f"uses the configuration {log.config} for {place}, and not {config}"
            led = broker.partitions.get(place)
            if (None if led is None else led.leader_epoch) != (state.leader_epoch if state.leader == me else None):
                yield f"differs in whether it leads {name}-{number}, or in which epoch, from {state}"
            elif led is not None and set(led.isr) != set(state.isr):
                yield f"has the in-sync set {led.isr} of {name}-{number}, and not {state.isr}"


def _only(some: Any, others: Any) -> Any:
    """Return the items that `others` lacks, or `some` if it is no mapping."""
    is_mapping = isinstance(some, Mapping) and isinstance(others, Mapping)
    return {key: each for key, each in some.items() if others.get(key) != each} if is_mapping else some
