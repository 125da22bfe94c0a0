"""The repair of a consumer group with missing records: written by a later release, or lost by a damaged disk.

After loading, the coordinator removes members without a subscription, which then rejoin, and records a later epoch, so
that the next heartbeat computes new targets. Without this repair, members could wait forever for targets.
"""

from odradek.broker.groups.machine.consumer.consumer_group import NO_SUBSCRIPTION, ConsumerGroup
from odradek.broker.groups.machine.consumer.coordinator_records import epoch_record, tombstones
from odradek.broker.groups.machine.consumer.subscriptions import existing_topics_of, metadata_hash
from odradek.broker.groups.machine.records import ConsumerGroupRecord
from odradek.metadata.image import ClusterImage


def repair(group: ConsumerGroup, image: ClusterImage) -> list[ConsumerGroupRecord]:
    """Return the records that repair a loaded group; empty if its records are consistent."""
    if not group.members and group.assignment_epoch <= group.epoch:
        return []
    unknown = [each.member_id for each in group.members.values() if each.subscription is NO_SUBSCRIPTION]
    of_members = max((member.epoch for member in group.members.values()), default=0)
    if not unknown and of_members <= group.assignment_epoch <= group.epoch and not _lacks_targets(group, image):
        return []
    records = [record for member_id in unknown for record in tombstones(group, member_id)]
    return [*records, epoch_record(group, group.metadata_hash, after=max(of_members, group.assignment_epoch))]


def _lacks_targets(group: ConsumerGroup, image: ClusterImage) -> bool:
    """Return whether members and targets differ, or a subscribed partition is in no target or in several.

    Return False if the next heartbeat computes the group's targets anyway.
    """
    if group.epoch > group.assignment_epoch:
        return False
    names = existing_topics_of(group.subscriptions, group.regexes, image)
    topics = [image.topics[name] for name in names]
    known = {topic.topic_id for topic in topics}
    assigned = [
        (topic_id, number)
        for target in group.targets.values()
        for topic_id, numbers in target.items()
        if topic_id in known
        for number in numbers
    ]
    is_whole = len(set(assigned)) == len(assigned) == sum(len(topic.partitions) for topic in topics)
    if is_whole and group.targets.keys() == group.members.keys():
        return False
    return group.metadata_hash == metadata_hash(names, image)
