"""The lessons about partitioners (SPEC 2)."""

from typing import Final

from odradek.lab.lessons.custom import UrgentFirst
from odradek.lab.lessons.lesson import Lesson, Placed
from odradek.lab.lessons.tables import adaptive_bytes, adaptive_weights, legacy_time, sticky_switch

_ONE_TO_THREE: Final = ("1", "2", "3")
_NO_KEYS: Final = (None,) * 12

LESSONS: Final = (
    Lesson(
        key="keys",
        section=2,
        title="A key chooses the partition",
        text="Records with the same key go to the same partition, so they stay in order. The Java producer, which came "
        "with Kafka 0.8.2, takes the positive part of murmur2(key) modulo the number of partitions, and still does.",
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
        look="Neighbouring records are in different partitions, so each batch fills slowly. In the second drawing "
        "partition 1 has no leader and is passed over; in the third none has one, and all are used.",
        placed=(
            Placed(partitioner="classic", keys=_NO_KEYS, partitions=3),
            Placed(partitioner="classic", keys=_NO_KEYS, partitions=3, leaderless=(1,)),
            Placed(partitioner="classic", keys=_NO_KEYS, partitions=3, leaderless=(0, 1, 2)),
        ),
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
        key="sticky-switch",
        section=2,
        title="sticky: when the partition changes",
        text="A full batch calls on_new_batch with the partition that it was for. The partition changes only if it is "
        "still that one, so two threads whose batches fill at the same time change it once.",
        look="The second thread's call changes nothing. The new partition differs from the old one while another one "
        "has a leader.",
        tables=(sticky_switch,),
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
        tables=(adaptive_weights,),
    ),
    Lesson(
        key="adaptive-bytes",
        section=2,
        title="adaptive: when the partition changes",
        text="adaptive counts bytes, not batches. After batch.size bytes the partition changes as soon as a batch is "
        "ready to send, so that no small batch is left behind; after twice as many bytes it changes in any case.",
        look="Bytes are counted from zero after each change.",
        tables=(adaptive_bytes,),
    ),
    Lesson(
        key="ignored-keys",
        section=2,
        title="round_robin and uniform_sticky ignore keys",
        text="Kafka has two partitioners that spread records evenly whatever their keys are: one record after another, "
        "or one batch after another. Records of one key are then in several partitions, and have no order.",
        look="All records have the keys a and b, and several partitions have records of both.",
        placed=tuple(
            Placed(partitioner=name, keys=("a", "b") * 6, partitions=3) for name in ("round_robin", "uniform_sticky")
        ),
    ),
    Lesson(
        key="legacy",
        section=2,
        title="Kafka 0.8: the hash of Java's strings",
        text="Kafka 0.8 took String.hashCode of the key: the keys 1, 2 and 3 go to three different partitions. Records "
        "without a key go to one random partition for ten minutes; then the partition is drawn again.",
        look="Ten minutes of one partition: that is why the small topics of that time looked uneven.",
        placed=(Placed(partitioner="legacy", keys=_ONE_TO_THREE, partitions=3, states={0: "3", 1: "1", 2: "2"}),),
        tables=(legacy_time,),
    ),
    Lesson(
        key="custom-partitioner",
        section=2,
        title="A partitioner of your own",
        text="Any object with the method partition can be the partitioner of a producer. This one reserves partition "
        "0 for urgent records, and spreads the others by the length of their keys.",
        look="Choose it with Producer(partitioner=UrgentFirst()), for topics of two partitions or more. A method "
        "on_new_batch is called if there is one.",
        placed=(
            Placed(
                partitioner="odradek.lab.lessons.custom:UrgentFirst",
                keys=("urgent-1", "a", "bb", "ccc", "urgent-2", "dddd"),
                partitions=3,
                states={0: "urgent-1 urgent-2", 1: "bb dddd", 2: "a ccc"},
            ),
        ),
        code=UrgentFirst,
    ),
)
