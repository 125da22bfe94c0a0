"""The lessons about groups of each generation, and about reading without a group (SPEC 4 to 6)."""

from typing import Final

from odradek.lab.lessons.lesson import Assigned, Lesson, Placed, Played
from odradek.lab.lessons.tables import counts, names_of_today, states
from odradek.lab.player.script import PHASES

_TWO: Final = ("C0", "C1")
_THREE: Final = ("C0", "C1", "C2")

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
        title="Partitions belong to threads, not to consumers",
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
        key="broadcast",
        section=4,
        title="Each group gets all messages, one member gets each",
        text="Three messages with the keys 1, 2 and 3 fall on three partitions. Group 1 has one member, which receives "
        "all three. Group 2 has three members, which receive one each: broadcast between groups, unicast within one.",
        look="The first drawing shows the messages, the second one the group of one, the third one the group of three.",
        placed=(Placed(partitioner="legacy", keys=("1", "2", "3"), partitions=3, states={0: "3", 1: "1", 2: "2"}),),
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
    Lesson(
        key="walk",
        section=4,
        title="Four members join, and three of them leave",
        text="One member reads all three partitions, two read 2 and 1, three read one each, and the fourth has none. "
        "When members 1, 2 and 3 leave one by one, the shares are 1, 1, 1, then 2 and 1, then 3 for the last.",
        look="The shares are the same in all generations. What differs is how long partitions are not read.",
        tables=(counts,),
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
        key="leader-found",
        section=5,
        title="A reader without a group finds the leader",
        text="A simple consumer reads the partition of its choice from the offset of its choice. It requests the "
        "topic's leaders and replicas from any broker, and fetches from the leader. Its offsets are its own: this one "
        "reads the same three messages from offset 0 again and again.",
        look="Step from 0 s on: Metadata, then Fetch. There are no joins and no heartbeats, and no group waits for it.",
        played=Played(script="0:reader,6:end", partitions=1),
    ),
    Lesson(
        key="leader-changes",
        section=5,
        title="Its leader dies, and it follows",
        text="Broker 0 leads the partition and dies at 5 s. The reader's connection closes, it requests "
        "the leader from the other brokers until there is one, and fetches from the same offset there.",
        look="Step from 5 s on. A member of a group beside it has the same leader to follow; in generation 1 its group "
        "also rebalances, because it watches the brokers.",
        played=Played(script="0:join,0:reader,5:broker-0,15:broker-0-back,25:end", partitions=1, at_ms=5_000),
    ),
)

_COORDINATOR: Final = (
    Lesson(
        key="coordinator",
        section=6,
        title="A rebalance and its messages",
        text="A member finds its group's coordinator by a request to any broker, and joins there. In generation 2, the "
        "coordinator collects all joins (PreparingRebalance), begins a generation (CompletingRebalance), and one "
        "member, the leader, computes the assignment. In generation 3, heartbeats alone carry all of it.",
        look="Step from 5 s on: JoinGroup and SyncGroup in generation 2, ConsumerGroupHeartbeat in generation 3.",
        played=Played(script="0:join,0:join,5:join,12:end", at_ms=5_000),
    ),
    Lesson(
        key="names",
        section=6,
        title="The first design and Kafka of today",
        text="The coordinator was published before it was built. Most of its messages have other names today; its idea "
        "that the broker computes the assignment came back with generation 3.",
        look="IllegalGeneration became two errors: one says that a rebalance has begun, the other one that it is over.",
        tables=(names_of_today, states),
    ),
    Lesson(
        key="growth",
        section=6,
        title="The topic grows",
        text="The topic gets two partitions at 5 s. In generation 1, each member watches the topic's node in the tree. "
        "In generation 2, a member finds them when it reads the metadata again, every metadata.max.age.ms: 5 s here, 5 "
        "minutes by default. In generation 3, the coordinator assigns them with the responses to the next heartbeats.",
        look="Step from 5 s on: how long are 6 and 7 not read in each generation, and who begins the rebalance?",
        played=Played(script="0:join,0:join,5:grow-8,20:end", at_ms=5_000),
    ),
    Lesson(
        key="upgrade",
        section=6,
        title="From generation 2 to 3 while the group reads",
        text="Member 1 starts again with group.protocol=consumer at 5 s, member 2 at 12 s. With the first one, the "
        "coordinator turns the group into one of generation 3, if group.consumer.migration.policy allows it; it serves "
        "members of both protocols until the last one has changed.",
        look="Look at generation 2 after 5 s: member-1 sends ConsumerGroupHeartbeat and member-2 still JoinGroup, and "
        "the epochs go on from the generations. A way back is the same, with group.protocol=classic.",
        played=Played(script="0:join,0:join,5:upgrade-1,12:upgrade-2,22:end", at_ms=5_000),
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

LESSONS: Final = (*_TREE, *_SIMPLE, *_COORDINATOR)
