"""M2 to M7. The numbers that lessons state are those that are computed."""

from itertools import pairwise

import pytest

from odradek.lab.case import LabError
from odradek.lab.costs import Generation
from odradek.lab.lessons import LESSONS, SECTIONS, Lesson, Placed, lesson_of
from odradek.lab.lessons.tables import adaptive_bytes, adaptive_weights, counts, legacy_time, sticky_switch
from odradek.lab.notation import partitions_of_text
from odradek.lab.pictures.drawing import draw
from odradek.lab.player import parse_script
from odradek.lab.player.playing import play

WALK = lesson_of(4, "walk")


def names(lesson: Lesson) -> str:
    return f"{lesson.section}-{lesson.key}"


def test_each_section_has_lessons_with_addresses_of_their_own() -> None:
    assert {lesson.section for lesson in LESSONS} == SECTIONS.keys()
    assert len({names(lesson) for lesson in LESSONS}) == len(LESSONS)
    with pytest.raises(LabError, match="there is no lesson nothing of section 3"):
        lesson_of(3, "nothing")


@pytest.mark.parametrize("lesson", LESSONS, ids=names)
def test_a_lesson_s_numbers_are_those_that_strategies_and_partitioners_compute(lesson: Lesson) -> None:
    for example in lesson.assigned:
        settled, first = example.computed()
        assert not example.states or settled == example.states
        assert not example.first or first == example.first
        assert draw(example.chart()).endswith("</svg>")
    for placed in lesson.placed:
        assert not placed.states or placed.computed() == placed.states
        assert draw(placed.chart()).endswith("</svg>")
    if lesson.played is not None:
        assert parse_script(lesson.played.script).end_ms >= lesson.played.at_ms
    for tabulated in lesson.tables:
        assert {len(row) for row in tabulated().rows} == {len(tabulated().headings)}
    assert lesson.assigned or lesson.placed or lesson.played or lesson.tables


def test_classic_deals_records_out_and_sticky_keeps_batches_together() -> None:
    classic, sticky = (
        [tuple(map(int, some.split())) for some in lesson_of(2, key).placed[0].computed().values()]
        for key in ("classic", "sticky")
    )
    assert all(second - first == 3 for some in classic for first, second in pairwise(some))
    assert sorted(number for some in sticky for number in some) == list(range(1, 13))
    assert all(set(some) >= {*range(number, number + 4)} for some in sticky for number in some[::4])


def test_queues_of_0_3_and_1_batches_weigh_4_1_and_3() -> None:
    many = Placed(partitioner="adaptive", keys=(None,) * 32_000, partitions=3, queues=(0, 3, 1))
    assert [round(len(some.split()) / 4_000) for some in many.computed().values()] == [4, 1, 3]


def test_the_tables_of_partitioners_have_what_the_rules_say() -> None:
    calls = [int(row[1]) for row in sticky_switch().rows]
    assert calls[0] == calls[1] == calls[4] != calls[2] == calls[3]
    assert [row[3] for row in adaptive_weights().rows] == ["4", "1", "3", "1", "1", "1", "2", "0", "1"]
    shares = [int(row[4].rstrip("%")) for row in adaptive_weights().rows]
    assert all(abs(share - 100 * weight / 8) <= 2 for share, weight in zip(shares, (4, 1, 3), strict=False))
    assert shares[7] == 0
    assert len(adaptive_bytes().rows) == 5
    kept = [row[1] for row in legacy_time().rows]
    assert len(set(kept[:4])) == len(set(kept[4:7])) == 1
    assert kept[3] != kept[4]


def test_the_table_of_counts_is_that_of_the_walk_of_four_members() -> None:
    shares = [[each for each in row[1:] if each != "–"] for row in counts().rows]
    walk = [["0-2"], ["0-1", "2"], ["0", "1", "2"], ["0", "1", "2", "none"], ["0", "1", "2"], ["0-1", "2"], ["0-2"]]
    assert shares == walk


def test_a_random_assignor_of_a_user_gives_each_partition_to_one_subscriber() -> None:
    lesson = lesson_of(3, "random")
    settled, _ = lesson.assigned[0].computed()
    assert sorted(place for some in settled.values() for place in partitions_of_text(some.replace(" ", ","))) == [
        ("t", number) for number in range(6)
    ]
    assert len(lesson.source.splitlines()) < 20


@pytest.mark.parametrize("generation", [Generation.ZOOKEEPER, Generation.CONSUMER])
def test_the_reader_of_the_lesson_finds_the_leader_and_follows_its_change(generation: Generation) -> None:
    played = lesson_of(5, "leader-changes").played
    assert played is not None
    said = [step for step in play(generation, played.script, partitions=1).steps if "reader " in step.text]
    assert any("broker-0 leads partition 0" in step.text for step in said if step.at_ms < 5_000)
    fetches = [step for step in said if "fetches partition 0 from offset 0" in step.text]
    assert [step.at_ms > 5_000 for step in fetches] == [False, True]
    assert all(step.text.endswith("3 messages") for step in fetches)
    assert fetches[0].message is not None
    assert fetches[0].message.source == "broker-0"
    assert fetches[1].message is not None
    assert fetches[1].message.source != "broker-0"


def test_the_stars_of_the_sticky_lesson_are_two_and_four() -> None:
    pictures = [draw(example.chart()) for example in lesson_of(3, "sticky").assigned]
    assert [picture.count("*</text>") for picture in pictures] == [2, 4]


@pytest.mark.parametrize("generation", Generation)
def test_the_walk_of_four_members_has_the_stated_shares_in_each_generation(generation: Generation) -> None:
    assert WALK.played is not None
    made = play(generation, WALK.played.script, partitions=WALK.played.partitions)
    script = parse_script(WALK.played.script)
    for at_ms, shares in WALK.played.shares:
        owners = [step for step in made.steps if step.at_ms <= at_ms][-1].owners
        members = [f"member-{number}" for number in script.present_at(at_ms)]
        assert tuple(sorted(list(owners.values()).count(name) for name in members)) == shares, at_ms


@pytest.mark.parametrize("generation", [Generation.ZOOKEEPER, Generation.EAGER, Generation.CONSUMER])
def test_the_partitions_of_a_topic_that_grows_are_read_in_each_generation(generation: Generation) -> None:
    played = lesson_of(6, "growth").played
    assert played is not None
    made = play(generation, played.script, partitions=played.partitions)
    grows = next(number for number, step in enumerate(made.steps) if step.text == "the topic grows to 8 partitions")
    assert {6, 7} <= set(made.steps[grows + 1].unread)
    assert (sorted(made.steps[-1].owners), made.steps[-1].unread) == ([*range(8)], ())
    assert all(step.text for step in made.steps)


def test_a_group_reads_on_while_its_members_change_from_the_classic_protocol_to_the_consumer_protocol() -> None:
    played = lesson_of(6, "upgrade").played
    assert played is not None
    made = play(Generation.COOPERATIVE, played.script, partitions=played.partitions)
    texts = [step.text for step in made.steps if 5_000 < step.at_ms < 12_000]
    assert "the group is Stable, epoch 3" in texts
    assert "generation 3 has begun for member-2; it has no leader, because the coordinator assigns" in texts
    assert any(text.startswith("member-1 joins with its first heartbeat") for text in texts)
    assert max(len(step.unread) for step in made.steps if step.at_ms > 5_000) == 3
    assert sorted(made.steps[-1].owners.values()) == ["member-1"] * 3 + ["member-2"] * 3
