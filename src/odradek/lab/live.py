"""Reads the case of a live group from its cluster."""

from odradek.clients import Admin
from odradek.clients.admin.descriptions import GroupDescription
from odradek.lab.case import Case, LabFailure, Member
from odradek.protocol.consumer_protocol import PROTOCOL_TYPE


async def read_case(admin: Admin, group_id: str) -> tuple[Case, str]:
    """Describe a group. Return it as a case, with its assignor's name, which is empty while a classic group rebalances.

    A member's topics are the subscribed and the assigned ones, because those of a regular expression are only in the
    assignment. Raises `LabFailure` if the group has no members, shows no subscriptions, or is not one of consumers.
    Raises `KafkaError` if the cluster refuses to describe it.
    """
    group = await admin.describe_group(group_id)
    if group.protocol_type not in ("", PROTOCOL_TYPE):
        raise LabFailure(
            f"group {group_id} has the protocol type {group.protocol_type}: its members share no partitions"
        )
    if not group.members:
        raise LabFailure(f"group {group_id} has no members (state {group.group_state}): start its consumers first")
    members = _members(group)
    names = sorted({topic for member in members.values() for topic in member.topics})
    if not names:
        raise LabFailure(f"group {group_id} is in state {group.group_state} and shows no subscriptions: try again")
    described = {each.name: each for each in await admin.list_topics(include_internal=True) if each.name in set(names)}
    counts = {name: len(topic.partitions) for name, topic in described.items()}
    members = {
        name: Member(
            topics=tuple(topic for topic in member.topics if topic in counts),
            owned=tuple(each for each in member.owned if each.partition < counts.get(each.topic, 0)),
            rack=member.rack,
            instance_id=member.instance_id,
        )
        for name, member in members.items()
    }
    rack_of = {broker.broker_id: broker.rack for broker in (await admin.describe_cluster()).brokers}
    replica_racks = {
        name: tuple(
            frozenset(rack for broker in partition.replicas if (rack := rack_of.get(broker)))
            for _, partition in sorted(topic.partitions.items())
        )
        for name, topic in described.items()
        if any(rack_of.values())
    }
    return Case(topics=counts, members=members, replica_racks=replica_racks).checked(), group.protocol


def _members(group: GroupDescription) -> dict[str, Member]:
    return {
        member.member_id: Member(
            topics=tuple(sorted({*member.topics, *(each.topic for each in member.assignment)})),
            owned=tuple(member.assignment),
            rack=member.rack,
            instance_id=member.group_instance_id,
        )
        for member in group.members
    }
