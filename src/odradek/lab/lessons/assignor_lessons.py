"""The lessons about assignors (SPEC 3)."""

from typing import Final

from odradek.lab.lessons.custom import RandomAssignor
from odradek.lab.lessons.lesson import Assigned, Lesson, Played

_TWO: Final = ("C0", "C1")
_THREE: Final = ("C0", "C1", "C2")

LESSONS: Final = (
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
        "each still has three. With t0 for three members, t1 for two of them and t2 for C2 alone, C2 has four "
        "partitions, the others one.",
        look="The ring goes on behind the member that was passed over, so shares may become unequal.",
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
    Lesson(
        key="sticky-balance",
        section=3,
        title="sticky: balance wins",
        text="C0 has all four partitions, and C1 joins: staying put would be closest to the last assignment, but two "
        "and two is balanced. In the second drawing the topic has grown by two partitions: nothing moves, and "
        "the new ones go to members with the fewest.",
        look="Only as many partitions have a star as balance needs.",
        assigned=(
            Assigned(
                strategy="sticky",
                topics=("t=4",),
                members=_TWO,
                owned=("C0=t:0-3",),
                states={"C0": "t:0-1", "C1": "t:2-3"},
            ),
            Assigned(
                strategy="sticky",
                topics=("t=8",),
                members=_THREE,
                owned=("C0=t:0-1", "C1=t:2-3", "C2=t:4-5"),
                states={"C0": "t:0-1,6", "C1": "t:2-3,7", "C2": "t:4-5"},
            ),
        ),
    ),
    Lesson(
        key="claims",
        section=3,
        title="sticky: two members claim the same partition",
        text="A member that was away for a while still claims 0 and 1, which C1 has by now. A claim travels with its "
        "generation: the newer one wins. If both claims are of the same generation, neither counts.",
        look="First drawing: C1's claim of generation 4 beats C0's of generation 3. Second drawing: both claims are "
        "void, so that 0 and 1 are dealt out anew.",
        assigned=(
            Assigned(
                strategy="sticky",
                topics=("t=4",),
                members=_TWO,
                owned=("C0=t:0-1", "C1=t:0-1"),
                generations={"C0": 3, "C1": 4},
                states={"C0": "t:2-3", "C1": "t:0-1"},
            ),
            Assigned(
                strategy="sticky",
                topics=("t=4",),
                members=_TWO,
                owned=("C0=t:0-1", "C1=t:0-1"),
                generations={"C0": 4, "C1": 4},
                states={"C0": "t:0,2", "C1": "t:1,3"},
            ),
        ),
    ),
    Lesson(
        key="static-members",
        section=3,
        title="Static members come first",
        text="Members are sorted before partitions are dealt out: those with an instance id first, by that id, then "
        "the others by member id. A member id changes at each restart, an instance id does not.",
        look="C2 has an instance id, so it gets the first partitions; a restart of C2 would change nothing.",
        assigned=(
            Assigned(
                strategy="range",
                topics=("t=6",),
                members=_THREE,
                instances=("C2=stable",),
                states={"C2": "t:0-1", "C0": "t:2-3", "C1": "t:4-5"},
            ),
        ),
    ),
    Lesson(
        key="racks",
        section=3,
        title="Members read replicas of their own rack (KIP-881)",
        text="Members are on racks a, b and c; the copies of partitions 0, 1 and 2 are on c, b and a, and so on. With "
        "racks, range keeps its counts and gives each member partitions with a copy on its rack.",
        look="The second drawing is range without racks: every partition would be read across racks. Members read from "
        "a replica that does not lead if the brokers' replica.selector.class is RackAwareReplicaSelector.",
        assigned=(
            Assigned(
                strategy="range",
                topics=("t=6",),
                members=_THREE,
                racks=("a,b,c",),
                replica_racks=("t=c,b,a",),
                states={"C0": "t:2,5", "C1": "t:1,4", "C2": "t:0,3"},
            ),
            Assigned(
                strategy="range", topics=("t=6",), members=_THREE, states={"C0": "t:0-1", "C1": "t:2-3", "C2": "t:4-5"}
            ),
        ),
    ),
    Lesson(
        key="random",
        section=3,
        title="An assignor of your own",
        text="A class with a name and assign, chosen by its import path, is an assignor. This one gives every "
        "partition to a random subscriber.",
        look="Reload this page: the assignment is another one each time. A member may have none.",
        assigned=(Assigned(strategy="odradek.lab.lessons.custom:RandomAssignor", topics=("t=6",), members=_THREE),),
        code=RandomAssignor,
    ),
)
