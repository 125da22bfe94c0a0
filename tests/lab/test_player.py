"""M4, M6, M7. The player: a script of clicks on one group of each generation, step by step."""

import re
from functools import cache

import pytest

from odradek.lab.case import LabError
from odradek.lab.costs import Generation
from odradek.lab.player import Play, parse_script
from odradek.lab.player.playing import play
from odradek.lab.player.steps import Kind

pytestmark = pytest.mark.long

WALK = "0:join,0:join,5:join,12:die-2,20:leave-1,30:end"
LATER = (Generation.EAGER, Generation.COOPERATIVE, Generation.CONSUMER)


@cache
def played(generation: Generation, script: str = WALK) -> Play:
    return play(generation, script)


def most_unread(made: Play, from_ms: int, to_ms: int) -> int:
    """Return the highest number of partitions that nobody reads in a part of the play."""
    return max(len(step.unread) for step in made.steps if from_ms < step.at_ms < to_ms)


@pytest.mark.parametrize("generation", [Generation.ZOOKEEPER, Generation.CONSUMER])
def test_the_same_script_and_seed_give_the_same_steps(generation: Generation) -> None:
    assert play(generation, WALK) == played(generation)
    assert play(generation, WALK, seed=1).steps != played(generation).steps


@pytest.mark.parametrize("generation", Generation)
def test_the_last_member_owns_all_partitions_when_the_others_have_died_and_left(generation: Generation) -> None:
    last = played(generation).steps[-1]
    assert last.owners == dict.fromkeys(range(6), "member-3")
    assert last.unread == ()


def test_a_member_that_joins_stops_all_others_in_eager_and_tree_groups_only() -> None:
    assert [most_unread(played(each), 5_000, 12_000) for each in Generation] == [6, 6, 2, 2]


@pytest.mark.parametrize("generation", Generation)
def test_a_dead_member_s_partitions_are_not_read_before_its_session_ends(generation: Generation) -> None:
    dying = next(step for step in played(generation).steps if step.text.startswith("member-2 dies"))
    assert dying.kind is Kind.CLICK
    assert dying.at_ms == 12_000
    gaps = [gap for gap in played(generation).timeline.gaps if 11_900 < gap.from_ms < 12_300]
    assert [gap.to_ms > 17_000 for gap in gaps] == [True, True]
    assert played(generation).totals.interrupted_ms > 5_000


def test_messages_have_their_main_fields_and_errors() -> None:
    said = [str(step.message) for step in played(Generation.EAGER).steps if step.message]
    assert "JoinGroup member-3 → broker-0 (member_id=none, protocol=range, owned=none)" in said
    assert "Heartbeat response broker-0 → member-1: REBALANCE_IN_PROGRESS" in said
    assert "SyncGroup response broker-0 → member-3 (assignment=4, 5)" in said
    claims = [str(step.message) for step in played(Generation.ZOOKEEPER).steps if "claims partition" in step.text]
    assert any(each.startswith("create member-3 → zookeeper (paths=/consumers/group/owners/t/") for each in claims)


@pytest.mark.parametrize("generation", LATER)
def test_heartbeats_that_change_nothing_are_one_step(generation: Generation) -> None:
    made = played(generation, "0:join,0:join,60:end")
    assert made.totals.requests > 100
    assert len(made.steps) < 60
    pairs = zip(made.steps, made.steps[1:], strict=False)
    assert not [second for first, second in pairs if first.kind is second.kind is Kind.ROUTINE]


@pytest.mark.parametrize("phase", range(1, 6))
def test_the_next_coordinator_ends_each_phase_of_a_failover_with_one_owner_a_partition(phase: int) -> None:
    made = played(Generation.EAGER, f"0:join,0:join,4:failover-{phase},5:join,20:end")
    texts = [step.text for step in made.steps]
    died = next(number for number, text in enumerate(texts) if f"dies: phase {phase}" in text)
    before, after = texts[texts.index("member-3 starts") : died], texts[died:]
    told = sum("with REBALANCE_IN_PROGRESS" in text for text in before)
    joins = sum(", to join again" in text for text in before)
    answered = sum(" assigns partition" in text for text in before)
    assert told in {1: {0}, 2: {1}, 3: {1, 2}}.get(phase, {2})
    assert joins in {1: {0}, 2: {0, 1}, 3: {1}}.get(phase, {2}), "one that was told joins in vain"
    assert answered == (phase == 5)
    assert any("is the group's coordinator" in text for text in after)
    assert sorted(made.steps[-1].owners) == list(range(6))
    assert len(set(made.steps[-1].owners.values())) == 3
    generations = [int(found[1]) for text in texts if (found := re.match(r"generation (\d+) has begun", text))]
    assert generations == sorted(generations)


@pytest.mark.parametrize("phase", range(1, 6))
def test_a_failover_by_name_ends_with_what_it_has_kept(phase: int) -> None:
    made = played(Generation.EAGER, f"failover-{phase}")
    assert made.script == f"failover-{phase}"
    assert any(f"dies: phase {phase}" in step.text for step in made.steps)
    assert [each.text.split(":")[0] for each in made.findings if each.holds] == [
        "each of 6 partitions has one owner",
        "no commit is lost",
        "no generation began twice",
    ]


@pytest.mark.parametrize("generation", [Generation.ZOOKEEPER, Generation.COOPERATIVE, Generation.CONSUMER])
def test_a_failover_by_name_is_checked_in_every_generation(generation: Generation) -> None:
    findings = played(generation, "failover-4").findings
    assert [each.text for each in findings if not each.holds] == []
    assert len(findings) == (1 if generation is Generation.ZOOKEEPER else 3)


@pytest.mark.parametrize("generation", [Generation.ZOOKEEPER, Generation.CONSUMER])
def test_a_failover_without_joins_is_the_death_of_a_broker(generation: Generation) -> None:
    made = played(generation, "0:join,0:join,4:failover-5,5:join,20:end")
    assert any(re.match(r"broker-\d.* dies", step.text) for step in made.steps)
    assert made.steps[-1].unread == ()


def test_without_the_tree_brokers_lead_nothing_and_members_of_the_later_generations_keep_asking() -> None:
    made = played(Generation.COOPERATIVE, "0:join,3:zookeeper-away,30:zookeeper-back,45:end")
    assert "NOT_COORDINATOR" in {step.message.error for step in made.steps if step.message}
    assert most_unread(made, 3_000, 30_000) == 6
    assert made.steps[-1].unread == ()
    assert len(made.steps) < 80, "the same refusals are folded"


def test_a_broker_comes_back() -> None:
    made = played(Generation.CONSUMER, "0:join,3:broker-1,10:broker-1-back,25:end")
    leaders = [step.text for step in made.steps if step.kind is Kind.LEADERS]
    assert leaders[0].startswith("no broker leads partitions")
    assert made.steps[-1].unread == ()


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("", "the script is empty"),
        ("0:jump", "'0:jump' is not a click: there are join"),
        ("0:join,1:die", "is not a click: there are"),
        ("x:join", "is not a click: write SECONDS:CLICK"),
        ("121:join", "is too late"),
        (",".join(["0:join"] * 21), "use at most 20"),
        (",".join(["0:join"] * 9), "at most 8 members"),
        ("0:join,1:upgrade-2", "1:upgrade-2 is impossible: then the members are [1]"),
        ("0:join,1:grow-13", "1:grow-13 is impossible: then it has 1 or more, 12 at most"),
        ("0:join,1:die-2", "1:die-2 is impossible: then the members are [1]"),
        ("0:join,1:leave-1,2:die-1", "then the members are none"),
        ("0:broker-3", "brokers 0 to 2"),
        ("0:broker-0,1:broker-1,2:broker-2", "one broker has to live"),
        ("0:broker-0-back", "then the dead brokers are none"),
        ("0:zookeeper-back", "goes away, and then comes back"),
        ("0:failover-6", "the phases are 1 to 5"),
        ("5:end,6:join", "comes after the end"),
        ("0:end", "a play takes time"),
    ],
)
def test_a_script_that_cannot_be_played_is_refused_with_the_reason(script: str, error: str) -> None:
    with pytest.raises(LabError, match=re.escape(error)):
        parse_script(script)


def test_a_group_has_at_most_twelve_partitions() -> None:
    with pytest.raises(LabError, match="from 1 to 12"):
        play(Generation.EAGER, "0:join", partitions=13)
    with pytest.raises(LabError, match="grow-6 is impossible: the topic has 6 partitions from the start"):
        play(Generation.EAGER, "0:join,1:grow-6", partitions=6)


def test_a_script_s_text_is_in_the_order_of_time() -> None:
    script = parse_script("12.5:die-1, 0:join,20:broker-1,30:broker-1-back")
    assert str(script) == "0:join,12.5:die-1,20:broker-1,30:broker-1-back"
    assert script.end_ms == 42_000
    assert script.present_at(12_000) == (1,)
    assert script.present_at(12_500) == ()
