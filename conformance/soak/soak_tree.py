"""A round's cluster as the metadata tree describes it, and whether every broker agrees."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from odradek.metadata.image import TopicImage
from odradek.metadata.paths import DELETE_TOPICS, TOPICS
from odradek.metadata.reading import BrokenNodes, read_brokers, read_controller, read_topics
from odradek.metadata.store import NoNode
from odradek.model import OdradekError
from odradek.protocol.api import ApiKey
from odradek.runtime import system_runtime
from odradek.simulation.wire_client import BlockingWireClient
from odradek.stores import open_reader

_METADATA_VERSION: Final = 9
_EVERYTHING: Final = {
    "topics": None,
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}
_ANSWER_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The tree at about one moment."""

    brokers: frozenset[int]
    controller: int
    topics: Mapping[str, TopicImage]
    deleting: frozenset[str]

    def troubles(self, brokers: int) -> list[str]:
        """Why the cluster is not whole: an id that is not registered, a replica that is not in sync, and so on."""
        found = [f"broker {number} is not registered" for number in range(brokers) if number not in self.brokers]
        if self.controller not in self.brokers:
            found.append(f"the controller is {self.controller}")
        found += [f"topic {name} is being deleted" for name in sorted(self.deleting)]
        for topic in self.topics.values():
            for number, state in topic.partitions.items():
                if state.leader not in state.isr or set(state.isr) != set(state.replicas) or state.adding_replicas:
                    found.append(f"{topic.name}-{number}: {state}")
        return found


class Tree:
    """Looks at the metadata tree from this thread. Calls raise `OdradekError` while ZooKeeper does not answer."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner()
        self._reader = self._runner.run(self._open(url))

    async def _open(self, url: str) -> Any:
        return open_reader(url, system_runtime())

    def view(self) -> View:
        """Return the tree's present content."""
        return self._runner.run(self._view())

    async def _view(self) -> View:
        reader, broken = self._reader, BrokenNodes()
        try:
            names = await reader.children(TOPICS)
            deleting = await reader.children(DELETE_TOPICS)
            brokers = await read_brokers(reader, broken)
        except NoNode:
            return View(brokers=frozenset(), controller=-1, topics={}, deleting=frozenset())
        topics = await read_topics(reader, names, broken)
        return View(
            brokers=frozenset(brokers),
            controller=await read_controller(reader, broken),
            topics={name: topic for name, topic in topics.items() if topic is not None},
            deleting=frozenset(deleting),
        )

    def close(self) -> None:
        """Look no more."""
        self._runner.run(self._reader.close())
        self._runner.close()


def disagreements(view: View, address: str) -> list[str]:
    """Return the differences between the metadata of the broker at `address` and the tree."""
    try:
        with BlockingWireClient(address) as connection:
            connection.set_timeout(_ANSWER_S)
            answer = connection.ask(ApiKey.METADATA, _EVERYTHING, _METADATA_VERSION)
    except (OSError, AssertionError) as error:
        return [f"{address} does not answer: {error}"]
    found = []
    if (brokers := {each.node_id for each in answer.brokers}) != view.brokers:
        found.append(f"{address} says that the brokers are {sorted(brokers)}")
    if answer.controller_id != view.controller:
        found.append(f"{address} says that the controller is {answer.controller_id}, not {view.controller}")
    said = {
        (topic.name, each.partition_index): (each.leader_id, set(each.isr_nodes), set(each.replica_nodes))
        for topic in answer.topics
        for each in topic.partitions
    }
    known = {
        (topic.name, number): (state.leader, set(state.isr), set(state.replicas))
        for topic in view.topics.values()
        for number, state in topic.partitions.items()
    }
    different = sorted(place for place in said.keys() | known.keys() if said.get(place) != known.get(place))
    return found + [f"{address} says of {place}: {said.get(place)}, not {known.get(place)}" for place in different]


def troubles(tree: Tree, addresses: Mapping[int, str]) -> list[str]:
    """Why the cluster is not whole now, by the tree and by each broker; nothing if it is."""
    try:
        view = tree.view()
    except OdradekError as error:
        return [f"the tree: {error}"]
    return view.troubles(len(addresses)) or [
        line for number in sorted(view.brokers) for line in disagreements(view, addresses[number])
    ]
