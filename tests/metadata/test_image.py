"""The cluster's image: what changes, and what stays the same object."""

from uuid import UUID

from msgspec.structs import replace

from odradek.config.listeners import ListenerAddress
from odradek.metadata.image import UNNAMED, BrokerImage, ClusterImage, MetadataDelta, PartitionImage, TopicImage
from odradek.model import TopicPartition


def topic(name: str, number: int, *, leader: int = 0) -> TopicImage:
    partition = PartitionImage(leader=leader, leader_epoch=0, replicas=(0, 1), isr=(0, 1))
    return TopicImage(name=name, topic_id=UUID(int=number), partitions={0: partition})


def test_a_topic_is_found_by_name_and_by_id() -> None:
    image = ClusterImage().with_topics({"a": topic("a", 1), "b": topic("b", 2)})
    assert image.topic_by_id(UUID(int=2)) is image.topics["b"]
    assert image.topic_by_id(UUID(int=3)) is None
    assert image.partition(TopicPartition("a", 0)).has_leader
    assert image.partition(TopicPartition("a", 1)) is None
    assert image.partition(TopicPartition("c", 0)) is None


def test_image_changes_list_only_what_changed() -> None:
    old = ClusterImage().with_topics({name: topic(name, number) for number, name in enumerate("abcd", 1)})
    new = old.with_topics({"a": None, "b": topic("b", 2), "c": topic("c", 3, leader=1), "e": topic("e", 5)})
    assert sorted(new.changed_topics(old)) == ["a", "c", "e"]
    assert new.topics["b"] is old.topics["b"]
    assert new.topics["d"] is old.topics["d"]
    assert UUID(int=1) not in new.topic_names


def test_all_topics_are_to_check_after_a_change_of_brokers() -> None:
    old = ClusterImage().with_topics({"a": topic("a", 1), "b": topic("b", 2)})
    new = old.with_topics({"a": None, "b": topic("b", 2, leader=1), "c": topic("c", 3), "d": topic("d", 4)})
    delta = MetadataDelta.between(old, new)
    assert sorted(delta.topics_to_check) == ["a", "b", "c", "d"]
    brokers = {0: BrokerImage(broker_id=0, endpoints=(ListenerAddress("L", "h", 1),))}
    delta = MetadataDelta.between(new, replace(new, brokers=brokers))
    assert (delta.topics, delta.brokers_changed, sorted(delta.topics_to_check)) == ((), True, ["b", "c", "d"])
    assert not list(MetadataDelta.between(new, new).topics_to_check)


def test_unchanged_partitions_are_the_same_objects() -> None:
    def read(leader: int) -> TopicImage:
        some = {number: topic("a", 1, leader=leader if number == 1 else 0).partitions[0] for number in range(3)}
        return TopicImage(name="a", topic_id=UUID(int=1), partitions=some)

    old = ClusterImage().with_topics({"a": read(leader=0)})
    again, new = old.with_topics({"a": read(leader=0)}), old.with_topics({"a": read(leader=1)})
    assert again.topics["a"] is old.topics["a"]
    before, after = old.topics["a"].partitions, new.topics["a"].partitions
    assert [after[number] is before[number] for number in range(3)] == [True, False, True]
    assert after[1].leader == 1


def test_a_recreated_topic_has_only_its_new_id() -> None:
    old = ClusterImage().with_topics({"a": topic("a", 1)})
    new = old.with_topics({"a": topic("a", 2)})
    assert new.topic_names == {UUID(int=2): "a"}
    assert list(new.changed_topics(old)) == ["a"]


def test_a_topic_without_an_id_is_not_found_by_id() -> None:
    image = ClusterImage().with_topics({"a": topic("a", UNNAMED.int)})
    assert image.topic_by_id(UNNAMED) is None


def test_internal_topics_are_known_by_name() -> None:
    assert topic("__consumer_offsets", 1).is_internal
    assert not topic("__mine", 1).is_internal


def test_a_broker_address_is_found_by_its_listener_name() -> None:
    inside = ListenerAddress("INSIDE", "10.0.0.1", 1)
    broker = BrokerImage(broker_id=1, endpoints=(ListenerAddress("PLAINTEXT", "host", 2), inside))
    assert broker.endpoint("INSIDE") == inside
    assert broker.endpoint("OUTSIDE") is None
