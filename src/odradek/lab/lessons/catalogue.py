"""The lessons, in the order in which a newcomer reads them."""

from typing import Final

from odradek.lab.case import LabError
from odradek.lab.lessons.lesson import Assigned, Lesson, Placed, Played
from odradek.lab.player.script import PHASES

SECTIONS: Final = {
    2: "Partitioners: which partition gets a record",
    3: "Assignors: which member gets a partition",
    4: "Generation 1: groups in ZooKeeper",
    5: "Reading without a group",
    6: "Generations 2 and 3: the coordinator",
}
_TWO: Final = ("C0", "C1")
_THREE: Final = ("C0", "C1", "C2")
_ONE_TO_THREE: Final = ("1", "2", "3")
_NO_KEYS: Final = (None,) * 12

_PARTITIONERS: Final = (
    Lesson(
        key="keys",
        section=2,
        title="A key chooses the partition",
        text="Records with the same key go to the same partition, so they stay in order. All partitioners since Kafka "
        "0.9 use murmur2(key) modulo the number of partitions, as the Java client does.",
        look="The rows are equal for all three partitioners. Partition 1 gets none of the three keys: a hash does not "
        "spread few keys evenly.",
        placed=tuple(
            Placed(partitioner=name, keys=_ONE_TO_THREE, partitions=3, states={0: "1", 1: "", 2: "2 3"})
            for name in ("classic", "sticky", "adaptive")
        ),
    ),
    Lesson(
        key="classic",
        section=2,
        title="Without a key: one after another",
        text="Until Kafka 2.3, a producer took the next partition for each record without a key, from a random start. "
        "Twelve records for three partitions become three batches of which each waits for records.",
        look="Neighbouring records are in different partitions, so each batch fills slowly.",
        placed=(Placed(partitioner="classic", keys=_NO_KEYS, partitions=3),),
    ),
    Lesson(
        key="sticky",
        section=2,
        title="Without a key: one partition until the batch is full",
        text="From Kafka 2.4 on, a producer keeps one partition until a batch is full, and then takes another one. The "
        "same records become fewer and fuller batches, which are fewer requests.",
        look="A batch has four records here: 1 to 4, 5 to 8 and 9 to 12 stay together. The next partition is never the "
        "one before.",
        placed=(Placed(partitioner="sticky", keys=_NO_KEYS, partitions=3),),
    ),
    Lesson(
        key="adaptive",
        section=2,
        title="Without a key: slow brokers get less",
        text="Since Kafka 3.3, the next partition is drawn at random, those of slow brokers less often. "
        "Three partitions with queues of 0, 3 and 1 batches weigh 4, 1 and 3: the longest queue plus one, minus "
        "its own.",
        look="Of eight batches, partition 0 gets four on average, partition 1 gets one, and partition 2 gets three.",
        placed=(Placed(partitioner="adaptive", keys=(None,) * 32, partitions=3, queues=(0, 3, 1)),),
    ),
    Lesson(
        key="legacy",
        section=2,
        title="Kafka 0.8: the hash of Java's strings",
        text="Kafka 0.8 took String.hashCode of the key: the keys 1, 2 and 3 go to three different partitions. Each "
        "group gets all three messages: a group with one member reads all of them, and in a group with three "
        "members each reads one.",
        look="Each group reads all messages, and its members share them.",
        placed=(Placed(partitioner="legacy", keys=_ONE_TO_THREE, partitions=3, states={0: "3", 1: "1", 2: "2"}),),
        assigned=(
            Assigned(strategy="zookeeper-range", topics=("t=3",), members=("C0",), states={"C0-0": "t:0-2"}),
            Assigned(
                strategy="zookeeper-range",
                topics=("t=3",),
                members=_THREE,
                states={"C0-0": "t:0", "C1-0": "t:1", "C2-0": "t:2"},
            ),
        ),
    ),
)

_ASSIGNORS: Final = (
    Lesson(
        key="range",
        section=3,
        title="range: consecutive partitions, topic by topic",
        text="Five partitions for two members: 5 // 2 is 2, and the first 5 % 2 members take one more. C0 takes 0, 1 "
        "and 2, C1 takes 3 and 4. With two topics of three partitions, C0 has the larger share of both: 4 and 2.",
        look="range gives the same numbers of all topics to one member, which helps joins, and adds up remainders.",
        assigned=(
            Assigned(strategy="range", topics=("t=5",), members=_TWO, states={"C0": "t:0-2", "C1": "t:3-4"}),
            Assigned(
                strategy="range",
                topics=("t0=3", "t1=3"),
                members=_TWO,
                states={"C0": "t0:0-1 t1:0-1", "C1": "t0:2 t1:2"},
            ),
        ),
    ),
    Lesson(
        key="roundrobin",
        section=3,
        title="roundrobin: all partitions in a ring of members",
        text="All partitions are dealt to the members in turn: 0, 2, 4 and 1, 3. With two topics of three "
        "partitions, C0 and C1 have three each.",
        look="Compare with range: the shares differ by one at most, if all members subscribe to the same topics.",
        assigned=(
            Assigned(strategy="roundrobin", topics=("t=5",), members=_TWO, states={"C0": "t:0,2,4", "C1": "t:1,3"}),
            Assigned(
                strategy="roundrobin",
                topics=("t0=3", "t1=3"),
                members=_TWO,
                states={"C0": "t0:0,2 t1:1", "C1": "t0:1 t1:0,2"},
            ),
        ),
    ),
    Lesson(
        key="roundrobin-subscriptions",
        section=3,
        title="roundrobin with different subscriptions",
        text="A member that does not subscribe to a topic is passed over. With three topics for members in a circle, "
        "each still has three. With t0, t1 and t2 for one, two and three members, C2 alone can take t2: it has "
        "four partitions, the others one.",
        look="The ring goes on behind the member that was passed over, so remainders may pile up.",
        assigned=(
            Assigned(
                strategy="roundrobin",
                topics=("T0=3", "T1=2", "T2=4"),
                members=("C0=T0,T1", "C1=T1,T2", "C2=T2,T0"),
                states={"C0": "T0:0,2 T1:1", "C1": "T1:0 T2:0,2", "C2": "T0:1 T2:1,3"},
            ),
            Assigned(
                strategy="roundrobin",
                topics=("t0=1", "t1=2", "t2=3"),
                members=("C0=t0", "C1=t0,t1", "C2=t0,t1,t2"),
                states={"C0": "t0:0", "C1": "t1:0", "C2": "t1:1 t2:0-2"},
            ),
        ),
    ),
    Lesson(
        key="sticky",
        section=3,
        title="sticky: balanced, and close to the last assignment",
        text="C1 of C0, C1, C2 has left. sticky lets C0 keep 0 and 3, and C2 keep 2 and 5, and gives away C1's 1 and 4 "
        "only. roundrobin begins anew: partitions change hands although both of their members are still there.",
        look="The stars mark partitions that are new to their member: two with sticky, four with roundrobin.",
        assigned=(
            Assigned(
                strategy="sticky",
                topics=("t=6",),
                members=("C0", "C2"),
                owned=("C0=t:0,3", "C2=t:2,5"),
                states={"C0": "t:0-1,3", "C2": "t:2,4-5"},
            ),
            Assigned(
                strategy="roundrobin",
                topics=("t=6",),
                members=("C0", "C2"),
                owned=("C0=t:0,3", "C2=t:2,5"),
                states={"C0": "t:0,2,4", "C2": "t:1,3,5"},
            ),
        ),
    ),
    Lesson(
        key="cooperative-sticky",
        section=3,
        title="cooperative-sticky: two short rebalances instead of one stop",
        text="C2 joins C0 and C1. In the first generation, C0 gives up 2 and C1 gives up 5; C2 gets nothing. In "
        "the second one, C2 gets both. All other partitions are read all the time.",
        look="Play it: beside range, only the partitions that move are not read for a while.",
        assigned=(
            Assigned(
                strategy="cooperative-sticky",
                topics=("t=6",),
                members=_THREE,
                owned=("C0=t:0-2", "C1=t:3-5"),
                first={"C0": "t:0-1", "C1": "t:3-4", "C2": ""},
                states={"C0": "t:0-1", "C1": "t:3-4", "C2": "t:2,5"},
            ),
        ),
        played=Played(script="0:join,0:join,5:join,12:end", at_ms=5_000),
    ),
    Lesson(
        key="uniform",
        section=3,
        title="uniform: the broker assigns",
        text="In KIP-848's consumer protocol, the coordinator computes the assignment. uniform moves as little as "
        "sticky: C0 keeps 0 and 1, C1 keeps 3 and 4, C2 gets 2 and 5.",
        look="There is one result: a partition moves to its new member after the old one has given it up.",
        assigned=(
            Assigned(
                strategy="uniform",
                topics=("t=6",),
                members=_THREE,
                owned=("C0=t:0-2", "C1=t:3-5"),
                states={"C0": "t:0-1", "C1": "t:3-4", "C2": "t:2,5"},
            ),
        ),
    ),
)

_TREE: Final = (
    Lesson(
        key="ceiling-range",
        section=4,
        title="The two rules of generation 1",
        text="With four partitions and two consumers, both rules agree: 0, 1 and 2, 3. With three consumers, "
        "zookeeper-range gives 0, 1 | 2 | 3. The rule as it was first published rounds up, gives 0, 1 | 2, 3, and "
        "nothing to the third.",
        look="The third row: a consumer without a partition, although there are more partitions than consumers.",
        assigned=(
            Assigned(
                strategy="ceiling-range", topics=("t=4",), members=_TWO, states={"C0-0": "t:0-1", "C1-0": "t:2-3"}
            ),
            Assigned(
                strategy="zookeeper-range",
                topics=("t=4",),
                members=_THREE,
                states={"C0-0": "t:0-1", "C1-0": "t:2", "C2-0": "t:3"},
            ),
            Assigned(
                strategy="ceiling-range",
                topics=("t=4",),
                members=_THREE,
                states={"C0-0": "t:0-1", "C1-0": "t:2-3", "C2-0": ""},
            ),
        ),
    ),
    Lesson(
        key="threads",
        section=4,
        title="Threads get partitions, not consumers",
        text="Three consumers with two threads each are six threads for four partitions. The first two consumers get "
        "0, 1 and 2, 3, one for each thread; the third one is idle.",
        look="The rows are threads: C2-0 and C2-1 have none.",
        assigned=(
            Assigned(
                strategy="zookeeper-range",
                topics=("t=4",),
                members=_THREE,
                threads=("2",),
                states={"C0-0": "t:0", "C0-1": "t:1", "C1-0": "t:2", "C1-1": "t:3", "C2-0": "", "C2-1": ""},
            ),
        ),
    ),
    Lesson(
        key="zookeeper-roundrobin",
        section=4,
        title="zookeeper-roundrobin: a ring of threads",
        text="All partitions of all topics, in the order of Java's hash code of their names, are dealt to the "
        "threads in turn. Two topics of three partitions for three threads, two of C0 and one of C1: "
        "each gets two.",
        look="It is allowed only if all consumers subscribe to the same topics, each with one number of threads.",
        assigned=(
            Assigned(
                strategy="zookeeper-roundrobin",
                topics=("t=3", "u=3"),
                members=_TWO,
                threads=("C0=2",),
                states={"C0-0": "t:0 u:0", "C0-1": "t:1 u:1", "C1-0": "t:2 u:2"},
            ),
        ),
    ),
    Lesson(
        key="walk",
        section=4,
        title="Four members join, and three of them leave",
        text="One member reads all three partitions, two read 2 and 1, three read one each, and the fourth has none. "
        "When members 1, 2 and 3 leave one by one, the shares are 1, 1, 1, then 2 and 1, then 3 for the last.",
        look="The shares are the same in all generations. What differs is how long partitions are not read.",
        played=Played(
            script="0:join,5:join,10:join,15:join,20:leave-1,25:leave-2,30:leave-3,36:end",
            partitions=3,
            shares=(
                (4_900, (3,)),
                (9_900, (1, 2)),
                (14_900, (1, 1, 1)),
                (19_900, (0, 1, 1, 1)),
                (24_900, (1, 1, 1)),
                (29_900, (1, 2)),
                (35_900, (3,)),
            ),
        ),
    ),
    Lesson(
        key="herd",
        section=4,
        title="The herd effect",
        text="Each member of generation 1 watches the tree. When one joins, the watches of all others fire: every "
        "member stops, reads the tree, computes the whole assignment and claims its partitions again.",
        look="Compare the operations on the tree with the requests of the others, and the red lanes of the fifth join.",
        played=Played(script="0:join,0:join,0:join,0:join,6:join,14:end", partitions=12, at_ms=6_000),
    ),
    Lesson(
        key="split-brain",
        section=4,
        title="Members with different views",
        text="In generation 1, each member computes from the tree as it reads it. When two members join at once, the "
        "others may read a tree with only one of them, and claim partitions that are not theirs in the next view. A "
        "partition that is claimed already is refused, so it has one reader; the other member waits and tries again.",
        look="Step from 5 s on in generation 1: members claim partitions and delete the claims milliseconds later. In "
        "generation 2 one member computes for all, in generation 3 the coordinator does.",
        played=Played(script="0:join,0:join,5:join,5:join,12:end", at_ms=5_000),
    ),
    Lesson(
        key="silent-member",
        section=4,
        title="A member dies, and its partitions wait",
        text="A member that dies sends nothing. In every generation, its partitions wait until its session ends, six "
        "seconds after its last heartbeat; only then do the others take over.",
        look="The longest red lane begins at 6 s. Only a shorter session time-out shortens this wait.",
        played=Played(script="0:join,0:join,0:join,6:die-2,20:end", at_ms=6_000),
    ),
)

_SIMPLE: Final = (
    Lesson(
        key="simple-consumer",
        section=5,
        title="Leaders change, and readers follow them",
        text="A simple consumer reads partitions of its choice, from offsets of its choice, without a group: it may "
        "read a message many times, or a part of the partitions. It finds each partition's leader, fetches from it, "
        "and follows when it changes. Members of groups do the same below their group.",
        look="Play it with a group of one: broker 1 dies, and other brokers lead its partitions. Generation 1 also "
        "rebalances, because it watches the brokers; generations 2 and 3 only follow the leaders, like a simple "
        "consumer.",
        played=Played(script="0:join,5:broker-1,15:broker-1-back,25:end", at_ms=5_000),
    ),
)

_COORDINATOR: Final = (
    Lesson(
        key="coordinator",
        section=6,
        title="A rebalance and its messages",
        text="A member asks any broker for its group's coordinator, and joins there. In generation 2, the coordinator "
        "collects all joins (PreparingRebalance), begins a generation (CompletingRebalance), and one member, the "
        "leader, computes the assignment. In generation 3, heartbeats alone carry all of it.",
        look="Step from 5 s on: JoinGroup and SyncGroup in generation 2, ConsumerGroupHeartbeat in generation 3.",
        played=Played(script="0:join,0:join,5:join,12:end", at_ms=5_000),
    ),
    Lesson(
        key="without-zookeeper",
        section=6,
        title="The tree is away",
        text="Without the tree, a broker cannot prove that it still leads its partitions. When its session may have "
        "ended, it refuses requests, rather than acknowledge a record that another leader does not know.",
        look="For some seconds nothing changes. Then heartbeats fail with NOT_COORDINATOR, until the tree is back.",
        played=Played(script="0:join,0:join,5:zookeeper-away,30:zookeeper-back,45:end", at_ms=5_000),
    ),
    *(
        Lesson(
            key=f"failover-{phase}",
            section=6,
            title=f"The coordinator dies {when}",
            text=f"This is phase {phase} of a failover. Another broker then leads the group's partition of "
            "__consumer_offsets, reads the group from it, and ends the rebalance: each partition has one owner again, "
            "and no generation number is used twice.",
            look="Look at generation 2 after 5 s: which members had joined, and which requests they repeat.",
            played=Played(script=f"0:join,0:join,4:failover-{phase},5:join,20:end", at_ms=5_000),
        )
        for phase, when in PHASES.items()
    ),
)

LESSONS: Final = (*_PARTITIONERS, *_ASSIGNORS, *_TREE, *_SIMPLE, *_COORDINATOR)
_BY_ADDRESS: Final = {(lesson.section, lesson.key): lesson for lesson in LESSONS}


def lesson_of(section: int, key: str) -> Lesson:
    """Return a lesson. Raises `LabError` for an unknown one."""
    found = _BY_ADDRESS.get((section, key))
    if found is None:
        raise LabError(f"there is no lesson {key} of section {section}")
    return found
