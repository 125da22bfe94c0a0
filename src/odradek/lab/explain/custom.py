"""Explains a user's own strategy, whose rule is unknown, by its input and its result."""

from odradek.assignors import assign, sorted_members
from odradek.lab.case import Case
from odradek.lab.explain.explanation import Explanation, names, partitions
from odradek.lab.runs import Run, create, subscriptions
from odradek.model import TopicPartition


def explain_custom(case: Case, run: Run, partition: TopicPartition) -> Explanation:
    """Describe the input and result of a user's own strategy, and whether it is deterministic."""
    members = subscriptions(case.members)
    subscribers = [name for name in sorted_members(members) if partition.topic in members[name].topics]
    before = case.owners().get(partition)
    owner = next((member for member, some in run.settled.items() if partition in some), None)
    steps = [
        f"{run.strategy} is not built in: the lab knows its input and its result, not its rule.",
        (
            f"{partition.topic} has {partitions(case.topics[partition.topic])} and {len(subscribers):,} subscribers: "
            f"{names(subscribers)}."
        ),
        f"{before} owned {partition} before." if before else f"No member owned {partition} before.",
    ]
    if owner is None:
        steps.append(f"It gives {partition} to no member, not even after {run.generations} rebalances.")
    else:
        counts = [len(run.settled[name]) for name in subscribers]
        steps.append(
            f"It gives {partition} to {owner}, which has {partitions(len(run.settled[owner]))} in all; the subscribers "
            f"of {partition.topic} have from {min(counts):,} to {max(counts):,}."
        )
    again = assign(create(run.strategy), case.topics, members, racks=case.replica_racks)
    if any(list(again[name]) != list(run.first[name]) for name in members):
        steps.append("With the same input a second time it gives another result: it is not deterministic.")
    return Explanation(partition=partition, strategy=run.strategy, member=owner, steps=tuple(steps))
