"""Explains why a strategy gives a partition to its member, step by step with the numbers of the case.

Each module explains some strategies. It computes the partition's member by itself, and `explain` asserts that the
strategy assigns the partition to that member; only the choice of topics by `assignors.topic_spread` is not computed.
"""

from collections.abc import Callable
from typing import Final

from odradek.assignors import Assignor
from odradek.assignors.custom import CheckedAssignor
from odradek.lab.case import Case, LabError
from odradek.lab.explain.circles import explain_roundrobin, explain_zookeeper_roundrobin
from odradek.lab.explain.custom import explain_custom
from odradek.lab.explain.explanation import Explanation
from odradek.lab.explain.shares import explain_ceiling_range, explain_range, explain_zookeeper_range
from odradek.lab.explain.sticky import evened_out, explain_cooperative_sticky, explain_sticky
from odradek.lab.runs import Run, create, run_strategy
from odradek.model import TopicPartition

_RULES: Final[dict[str, Callable[[Case, Run, TopicPartition], Explanation]]] = {
    "range": explain_range,
    "roundrobin": explain_roundrobin,
    "sticky": explain_sticky,
    "cooperative-sticky": explain_cooperative_sticky,
    "uniform": explain_sticky,
    "zookeeper-range": explain_zookeeper_range,
    "zookeeper-roundrobin": explain_zookeeper_roundrobin,
    "ceiling-range": explain_ceiling_range,
}


def explain(case: Case, strategy: str, partition: TopicPartition) -> Explanation:
    """Explain which member gets the partition. Raises `LabError` for an unknown partition or a strategy that fails."""
    count = case.topics.get(partition.topic)
    if count is None:
        raise LabError(f"there is no topic {partition.topic}: the topics are {', '.join(sorted(case.topics)[:10])}")
    if not 0 <= partition.partition < count:
        raise LabError(f"there is no partition {partition}: {partition.topic} has {count}, from 0 to {count - 1}")
    run = run_strategy(case, strategy)
    given = next((member for member, some in run.settled.items() if partition in some), None)
    if not any(partition.topic in member.topics for member in case.members.values()):
        step = f"No member subscribes to {partition.topic}, so no member gets its partitions."
        return Explanation(partition=partition, strategy=strategy, member=None, steps=(step,))
    made = _rule(create(strategy))(case, run, partition)
    if made.member != given and given is not None and strategy in ("sticky", "cooperative-sticky", "uniform"):
        made = evened_out(made, given)
    assert made.member == given, f"{strategy} gives {partition} to {given}, the explanation to {made.member}"
    return made


def _rule(assignor: Assignor) -> Callable[[Case, Run, TopicPartition], Explanation]:
    if isinstance(assignor, CheckedAssignor):
        return explain_custom
    return _RULES.get(assignor.name, explain_custom)


__all__ = ["Explanation", "explain"]
