"""`odradek lab explain`: the member that it names is the one that the strategy gives, for the reasons of the rule."""

from random import Random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from odradek.assignors import ASSIGNOR_NAMES, Assignment, Assignor, GroupSubscription, assign
from odradek.lab.case import Case, LabError, Member
from odradek.lab.explain import Explanation, explain
from odradek.lab.runs import run_strategy, subscriptions
from odradek.model import TopicPartition
from tests.lab.lab_commands import lab, lab_json

_TOPICS = ("t", "u", "v")
_RACKS = ("a", "b", "c")


class Shuffled(Assignor):
    """Gives every partition to any subscriber, another one each time."""

    name = "shuffled"
    random = Random(1)

    def assign(self, group: GroupSubscription) -> Assignment:
        given: dict[str, list[TopicPartition]] = {member: [] for member in group.members}
        for topic, count in group.partitions.items():
            readers = [member for member, each in group.members.items() if topic in each.topics]
            for number in range(count if readers else 0):
                given[self.random.choice(readers)].append(TopicPartition(topic, number))
        return given


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Groups with few topics and members, any claims of ownership, static members, and racks in half of them."""
    topics = {topic: draw(st.integers(1, 7)) for topic in _TOPICS[: draw(st.integers(1, 3))]}
    every = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
    has_racks = draw(st.booleans())
    racks = st.none() | st.sampled_from(_RACKS) if has_racks else st.none()
    some_topics = st.lists(st.sampled_from(sorted(topics)), unique=True).map(tuple)
    alike = draw(st.none() | some_topics)
    members = {
        f"m{number}": Member(
            topics=draw(some_topics) if alike is None else alike,
            owned=tuple(draw(st.lists(st.sampled_from(every), unique=True, max_size=6))),
            generation=draw(st.integers(0, 2)),
            rack=draw(racks),
            instance_id=draw(st.none() | st.just(f"i{9 - number}")),
            threads=draw(st.integers(1, 3)) if alike is not None else 1,
        )
        for number in range(draw(st.integers(1, 12)))
    }
    sets = st.frozensets(st.sampled_from(_RACKS), max_size=2)
    replicas = {topic: tuple(draw(sets) for _ in range(count)) for topic, count in topics.items()} if has_racks else {}
    return Case(topics=topics, members=members, replica_racks=replicas).checked()


@pytest.mark.parametrize("strategy", ["sticky", "uniform"])
def test_a_member_that_gives_up_a_topic_is_explained_by_the_spread_of_topics(strategy: str) -> None:
    owner = Member(topics=("t", "u"), owned=(TopicPartition("t", 0), TopicPartition("u", 0)))
    case = Case(topics={"t": 1, "u": 1}, members={"m0": Member(topics=("t", "u")), "m1": owner}).checked()
    made = explain(case, strategy, TopicPartition("t", 0))
    assert made.member == "m0"
    assert made.steps[-1].endswith("so that no member has all partitions of one topic: t-0 is m0's.")


@given(case=cases(), strategy=st.sampled_from(ASSIGNOR_NAMES), data=st.data())
def test_the_member_of_an_explanation_is_the_one_that_the_strategy_gives(
    case: Case, strategy: str, data: st.DataObject
) -> None:
    topic = data.draw(st.sampled_from(sorted(case.topics)))
    partition = TopicPartition(topic, data.draw(st.integers(0, case.topics[topic] - 1)))
    try:
        run = run_strategy(case, strategy)
    except LabError:
        assume(strategy != "zookeeper-roundrobin")
        raise
    made = explain(case, strategy, partition)
    assert made.member == next((member for member, some in run.settled.items() if partition in some), None)
    if made.thread is not None and run.threads is not None:
        assert partition in run.threads[made.thread]
    if made.member is not None:
        assert made.member in made.steps[-1] or f"{partition}" in made.steps[-1]
        first = assign(strategy, case.topics, subscriptions(case.members), racks=case.replica_racks)
        if strategy not in ("cooperative-sticky", "zookeeper-range", "zookeeper-roundrobin", "ceiling-range"):
            assert partition in first[made.member]


def explained(partition: str, *arguments: str) -> list[str]:
    """The lines that the command prints, without numbers in front of the steps."""
    first, *steps = lab("explain", partition, *arguments).splitlines()
    return [first, *(step.partition(". ")[2] for step in steps)]


def test_range_is_explained_with_its_division() -> None:
    """M3, the example of SPEC 3."""
    assert explained("t-3", "-t", "t=5", "-m", "2") == [
        "range gives t-3 to c1",
        (
            "t has C = 2 subscribers, in this order (static members by instance id first, then the others by "
            "member id): "
            "c0, c1."
        ),
        "P = 5 and C = 2: n = P // C = 2 and m = P % C = 1, so the first one gets 3, the others 2.",
        "c1 is at position i = 1, counted from 0: it starts at n*i + min(i, m) = 2*1 + 1 = 3 and takes 2: t-3 to t-4.",
    ]


def test_range_is_explained_by_racks_where_they_decide() -> None:
    steps = explained("t-0", "-t", "t=3", "-m", "3", "--rack", "a,b,c", "--replica-rack", "t=c,b,a")
    assert steps[0] == "range gives t-0 to c2"
    assert steps[2:] == [
        "t-0 has replicas on rack c.",
        "c0 (rack a) does not fit.",
        "c1 (rack b) does not fit.",
        "c2 (rack c) fits and has room: it takes t-0, one of its 1.",
    ]


def test_roundrobin_is_explained_with_the_members_passed_over() -> None:
    """M3, the example of SPEC 3."""
    topics = ("-t", "T0=3", "-t", "T1=2", "-t", "T2=4", "-m", "C0=T0,T1", "-m", "C1=T1,T2", "-m", "C2=T2,T0")
    assert explained("T0-1", *topics, "-s", "roundrobin")[3:] == [
        "The partition before went to C0, so the circle continues after it.",
        "Passed over, because they do not subscribe to T0: C1.",
        "C2 is the next in the circle that subscribes to T0.",
    ]
    owners = {
        f"{topic}-{number}": explained(f"{topic}-{number}", *topics, "-s", "roundrobin")[0].split()[-1]
        for topic, count in (("T0", 3), ("T1", 2), ("T2", 4))
        for number in range(count)
    }
    assert " ".join(owners.values()) == "C0 C2 C0 C1 C0 C1 C2 C1 C2"


def test_sticky_is_explained_by_what_was_owned_and_by_the_counts() -> None:
    owned = ("-t", "t=6", "-m", "3", "--owned", "c0=t:0-2", "--owned", "c1=t:3-5", "-s", "sticky")
    moved = explained("t-5", *owned)
    assert moved[0] == "sticky gives t-5 to c2"
    assert moved[2:] == [
        "Balance comes first: 6 partitions over 3 members are 2 each: c0 2, c1 2, c2 2.",
        "c1 owned t-5 in generation 0.",
        (
            "c1 had 3 partitions of these and may have 2, so it keeps the first 2 and gives up the others: "
            "t-5 is number 3 "
            "of them and moves."
        ),
        (
            "Without an owner are 2 partitions of these: t:2,5. They are dealt out in this order, in turn, "
            "to the members "
            "that lack some: c2 2."
        ),
        "t-5 is number 2 in this order, and turn 2 is c2's.",
    ]
    assert explained("t-0", *owned)[4].endswith("so it keeps the first 2: t-0 is number 1 of them and stays.")


def test_cooperative_sticky_says_in_which_generation_a_partition_comes() -> None:
    owned = ("-t", "t=6", "-m", "3", "--owned", "c0=t:0-2", "--owned", "c1=t:3-5", "-s", "cooperative-sticky")
    assert "so it has no owner in this generation" in explained("t-5", *owned)[-2]
    assert explained("t-5", *owned)[-1] == "Then c2 gets t-5."
    assert "generation:" not in " ".join(explained("t-0", *owned))


def test_cooperative_sticky_may_deal_out_anew_what_a_member_without_the_topic_claims() -> None:
    case = Case(
        topics={"t": 1, "u": 2, "v": 4},
        members={
            "m0": Member(topics=("u", "v"), owned=tuple(TopicPartition("v", number) for number in (3,))),
            "m1": Member(topics=(), owned=(TopicPartition("v", 2),)),
            "m2": Member(topics=("v",)),
            "m3": Member(topics=("v",)),
        },
    )
    run = run_strategy(case, "cooperative-sticky")
    for number in range(4):
        partition = TopicPartition("v", number)
        assert partition in run.settled[str(explain(case, "cooperative-sticky", partition).member)]


def test_claims_that_contradict_each_other_are_named() -> None:
    case = Case(
        topics={"t": 2},
        members={
            name: Member(topics=("t",), owned=(TopicPartition("t", 0),), generation=generation)
            for name, generation in (("a", 1), ("b", 3), ("c", 3))
        },
    )
    assert "b, c all claim t-0 in generation 3, so none of these claims counts." in _steps(case)
    members = {name: case.members[name] for name in ("a", "b")}
    assert "b owned t-0 in generation 3; older claims do not count: a." in _steps(
        Case(topics={"t": 2}, members=members)
    )


def _steps(case: Case) -> tuple[str, ...]:
    return explain(case, "sticky", TopicPartition("t", 0)).steps


def test_generation_1_is_explained_with_threads_and_hash_codes() -> None:
    """M4, the examples of SPEC 4."""
    four = ("-t", "t=4", "-m", "3")
    assert explained("t-2", *four, "-s", "zookeeper-range")[0] == "zookeeper-range gives t-2 to c1, thread c1-0"
    ceiling = explained("t-3", *four, "-s", "ceiling-range")
    assert ceiling[0] == "ceiling-range gives t-3 to c1, thread c1-0"
    assert ceiling[2] == (
        "|TP| = 4 partitions over |CG| = 3 threads: N = ceil(4 / 3) = 2 for each thread, until none are left; the last "
        "one gets none."
    )
    assert "that of [t,0] is 87540032." in explained("t-0", *four, "-s", "zookeeper-roundrobin")[2]


def test_a_strategy_of_ones_own_is_explained_by_its_input_and_its_answer_alone() -> None:
    steps = explained("t-0", "-t", "t=8", "-m", "3", "-s", f"{__name__}:Shuffled")
    assert "the lab knows its input and its result, not its rule" in steps[1]
    assert steps[-1].startswith("With the same input a second time it gives another result")


def test_an_explanation_as_json_has_the_member_and_the_steps() -> None:
    (found,) = lab_json("explain", "t-0", "-t", "t=4", "-m", "2")
    assert (found["partition"], found["member"], found["strategy"], len(found["steps"])) == (["t", 0], "c0", "range", 3)
    assert set(found) == set(Explanation.__struct_fields__)


@pytest.mark.parametrize(
    ("partition", "message"),
    [
        ("t-4", "there is no partition t-4: t has 4, from 0 to 3"),
        ("x-0", "there is no topic x: the topics are t, u"),
        ("t", "'t' names no partition: write TOPIC-PARTITION"),
        ("t-", "'t-' names no partition"),
    ],
)
def test_a_partition_that_does_not_exist_is_refused(partition: str, message: str) -> None:
    assert message in lab("explain", partition, "-t", "t=4", "-t", "u=1", "-m", "c0=t", code=2)


def test_a_topic_without_subscribers_is_explained() -> None:
    assert explained("u-0", "-t", "t=4", "-t", "u=1", "-m", "c0=t") == [
        "range gives u-0 to no member",
        "No member subscribes to u, so no member gets its partitions.",
    ]
