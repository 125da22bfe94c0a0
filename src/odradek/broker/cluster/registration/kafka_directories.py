"""Adopts a data directory of Apache Kafka: writes its topics into the metadata tree and leaves its files unchanged.

A broker that is then started on the directory leads the partitions in the next leader epoch. Kafka's own files stay, so
that Kafka can use the directory again, with its own metadata and the logs as they are then (decision 7).

```
meta.properties            node.id, cluster.id     → the broker's id; /cluster/id
{topic}-{partition}/       partition.metadata      → /brokers/topics/{topic} with the topic's id; if the file is missing
                                                     or damaged, the id is taken from another partition, from Kafka's
                                                     controller log or from the tree
                           leader-epoch-checkpoint → …/partitions/{p}/state: no leader, the latest epoch
__cluster_metadata-0/      configurations          → /config/topics/{topic}
                           producer ids            → /latest_producer_id_block: far beyond Kafka's
```
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from odradek.broker.cluster.registration.broker_session import prepare_tree
from odradek.broker.log.checkpoints import leader_epoch_cache, meta_properties
from odradek.broker.log.checkpoints.leader_epoch_cache import LeaderEpochs
from odradek.broker.log.directories.directory_loading import read_topic_id
from odradek.broker.log.directories.kraft_metadata import FOLDER, KraftMetadata, read_kraft_metadata
from odradek.broker.log.directories.log_directories import LogDirectories
from odradek.broker.log.inspection.file_contents import partition_directories
from odradek.broker.log.names import parse_folder
from odradek.config.broker import BrokerConfig
from odradek.config.topic import topic_config
from odradek.metadata import paths
from odradek.metadata.nodes import NO_LEADER, ConfigNode, PartitionStateNode, ProducerIdBlockNode, TopicNode
from odradek.metadata.store import Create, Operation, SetData, Store
from odradek.model import ConfigurationError, StorageError, TopicPartition
from odradek.runtime import Disk, Entropy

PRODUCER_ID_GAP: Final = 1_000_000_000
"""Number of producer ids left for Kafka, which does not know ids allocated after the adoption."""


class AdoptedTopic(Struct, frozen=True, kw_only=True):
    """An adopted topic. `epochs`: each partition's latest leader epoch; `ignored`: unsupported configuration keys."""

    name: str
    topic_id: uuid.UUID
    epochs: Mapping[int, int]
    config: Mapping[str, str]
    ignored: Mapping[str, str]
    is_new: bool = True
    """Whether the tree did not have the topic before."""


class UnknownTopic(Struct, frozen=True, kw_only=True):
    """A topic that is not adopted because its id is unknown, with its partitions' folders."""

    name: str
    folders: Sequence[str]

    def __str__(self) -> str:
        first, more = f"{self.folders[0]}/{meta_properties.PARTITION_METADATA}", len(self.folders) - 1
        return (
            f"the topic {self.name} is left as it is: {first}{f' (and {more} more)' if more else ''} "
            "is missing or damaged, and nothing else says the topic's id. Write the two lines `version: 0` and "
            "`topic_id: ID` into it, with the TopicId that `kafka-topics.sh --describe` tells, and adopt again"
        )


class Adoption(Struct, frozen=True, kw_only=True):
    """The result of `adopt`, sorted by name: the adopted topics, and the topics with unknown ids."""

    broker_id: int
    topics: Sequence[AdoptedTopic]
    unknown: Sequence[UnknownTopic]


class _FoundTopic(Struct, frozen=True, kw_only=True):
    """A topic on disk: its id (None if unknown), each partition's latest leader epoch, and its sorted folders."""

    topic_id: uuid.UUID | None
    epochs: Mapping[int, int]
    folders: Sequence[str]


async def adopt(disk: Disk, directories: Sequence[str], store: Store, entropy: Entropy) -> Adoption:
    """Write the topics of a broker's data directories into the tree. A repeated call writes only what is new.

    Raise `StorageError`, before any topic is written, if the directories are in use, incomplete or not Kafka's, or if
    the tree belongs to another cluster or has a different topic of the same name.
    """
    broker_id, cluster_id = identity(disk, directories[0])
    note = "odradek metadata adopt"
    locked = LogDirectories(disk, directories, broker_id=broker_id, entropy=entropy, cluster_id=cluster_id, note=note)
    locked.lock()
    try:
        kraft = KraftMetadata()
        for directory in directories:
            if disk.is_directory(f"{directory}/{FOLDER}"):
                kraft = read_kraft_metadata(disk, directory)
        found = _topics(disk, directories)
        known = await prepare_tree(store, entropy, cluster_id=cluster_id)
        if known != cluster_id:
            raise StorageError(f"{directories[0]} is of cluster {cluster_id}, and the metadata of cluster {known}")
        topics, unknown = [], []
        for name, each in sorted(found.items()):
            topic_id = each.topic_id or kraft.topic_ids.get(name) or await _known_id(store, name)
            if topic_id is None:
                unknown.append(UnknownTopic(name=name, folders=each.folders))
            else:
                topic = _topic(name, topic_id, each.epochs, kraft.topic_configs.get(name, {}))
                topics.append(await _compared(store, topic, broker_id))
        for topic in topics:
            await _write(store, topic, broker_id)
        await _reserve_producer_ids(store, broker_id, kraft.next_producer_id + PRODUCER_ID_GAP)
    finally:
        locked.unlock()
    return Adoption(broker_id=broker_id, topics=topics, unknown=unknown)


def identity(disk: Disk, directory: str) -> tuple[int, str]:
    """Return the ids of broker and cluster of a data directory. Raise `StorageError` if it is not one."""
    path = f"{directory}/{meta_properties.META_PROPERTIES}"
    try:
        found = meta_properties.decode_meta_properties(disk.read_file(path), path)
    except FileNotFoundError:
        raise StorageError(f"{path} is missing: {directory} is not a data directory of a broker") from None
    if found.broker_id is None or found.cluster_id is None:
        raise StorageError(f"{path} does not say whose directory it is")
    return found.broker_id, found.cluster_id


def _topics(disk: Disk, directories: Sequence[str]) -> dict[str, _FoundTopic]:
    ids: dict[str, uuid.UUID | None] = {}
    holders: dict[str, dict[int, str]] = {}
    for folder in (folder for directory in directories for folder in partition_directories(disk, directory)):
        name = folder.rpartition("/")[2]
        partition = parse_folder(name)
        if partition is None or name == FOLDER:
            continue
        topic_id, known = read_topic_id(disk, folder), ids.get(partition.topic)
        if topic_id is not None and known not in (None, topic_id):
            raise StorageError(
                f"{folder} is of another topic {partition.topic} than its neighbours: move those of one of them away"
            )
        ids[partition.topic] = topic_id or known
        holders.setdefault(partition.topic, {})[partition.partition] = folder
    for name, folders in holders.items():
        if sorted(folders) != list(range(len(folders))):
            raise StorageError(
                f"of the topic {name} only the partitions {sorted(folders)} are here: name all of the broker's data "
                "directories, and if the others were never here, move these away"
            )
    return {
        name: _FoundTopic(
            topic_id=ids[name],
            epochs={number: _latest_epoch(disk, folder) for number, folder in folders.items()},
            folders=sorted(folders.values()),
        )
        for name, folders in holders.items()
    }


def _latest_epoch(disk: Disk, folder: str) -> int:
    path = f"{folder}/{leader_epoch_cache.FILE_NAME}"
    return max(LeaderEpochs.decode(disk.read_file(path), path).latest, 0) if disk.exists(path) else 0


def _topic(name: str, topic_id: uuid.UUID, epochs: Mapping[int, int], everything: Mapping[str, str]) -> AdoptedTopic:
    """Return the topic; unsupported keys of its configuration `everything` go to `ignored`."""
    config, ignored = {}, {}
    for key, value in everything.items():
        try:
            topic_config(BrokerConfig(), {key: value})
        except ConfigurationError:
            ignored[key] = value
        else:
            config[key] = value
    return AdoptedTopic(name=name, topic_id=topic_id, epochs=epochs, config=config, ignored=ignored)


async def _known_id(store: Store, name: str) -> uuid.UUID | None:
    node = await store.get(paths.topic(name))
    return None if node is None else TopicNode.decode(paths.topic(name), node.data).topic_id


async def _compared(store: Store, topic: AdoptedTopic, broker_id: int) -> AdoptedTopic:
    """Return `topic`, with `is_new=False` if the tree has it. Raise `StorageError` if the tree's topic differs."""
    node = await store.get(paths.topic(topic.name))
    if node is None:
        return topic
    known = TopicNode.decode(paths.topic(topic.name), node.data)
    if known.topic_id != topic.topic_id:
        raise StorageError(f"the metadata has another topic {topic.name}, of the id {known.topic_id}")
    if known.replicas != dict.fromkeys(topic.epochs, (broker_id,)):
        raise StorageError(f"the metadata has other partitions or replicas of the topic {topic.name}")
    return replace(topic, is_new=False)


async def _write(store: Store, topic: AdoptedTopic, broker_id: int) -> None:
    """Create a new topic in one transaction. For a known topic, write only missing states and higher leader epochs."""
    states = {TopicPartition(topic.name, number): epoch for number, epoch in topic.epochs.items()}
    found = await store.get_many(map(paths.partition_state, states))
    operations: list[Operation] = [] if not topic.is_new else await _creation(store, topic, broker_id)
    for (partition, epoch), node in zip(states.items(), found, strict=True):
        path = paths.partition_state(partition)
        state = PartitionStateNode(leader=NO_LEADER, leader_epoch=epoch, isr=(broker_id,), controller_epoch=0).encode()
        if node is None:
            operations += [Create(path=paths.partition(partition)), Create(path=path, data=state)]
        elif PartitionStateNode.decode(path, node.data).leader_epoch < epoch:
            operations.append(SetData(path=path, data=state, version=node.version))
    if operations:
        await store.multi(operations)


async def _creation(store: Store, topic: AdoptedTopic, broker_id: int) -> list[Operation]:
    config_path, config = paths.topic_config(topic.name), ConfigNode(config=topic.config).encode()
    has_config = await store.get(config_path) is not None
    node = TopicNode(replicas=dict.fromkeys(topic.epochs, (broker_id,)), topic_id=topic.topic_id)
    return [
        SetData(path=config_path, data=config) if has_config else Create(path=config_path, data=config),
        Create(path=paths.topic(topic.name), data=node.encode()),
        Create(path=paths.partitions(topic.name)),
    ]


async def _reserve_producer_ids(store: Store, broker_id: int, last: int) -> None:
    path = paths.LATEST_PRODUCER_ID_BLOCK
    node = await store.get(path)
    if node is not None and node.data and ProducerIdBlockNode.decode(path, node.data).last >= last:
        return
    await store.set(path, ProducerIdBlockNode(broker_id=broker_id, first=last, last=last).encode())
