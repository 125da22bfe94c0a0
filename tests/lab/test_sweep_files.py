"""A sweep's TOML file: what it means, and the errors of wrong ones."""

from pathlib import Path

import pytest
from sweeps import sweep_of, write_sweep

from odradek.lab.sweep import load_sweep
from odradek.model import ConfigurationError


def test_a_file_without_keys_is_a_sweep_of_all_strategies_and_failures(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "")
    assert sweep.axes["failure"] == ("none", "member-leaves", "member-joins", "member-restarts", "topic-grows")
    assert len(sweep.strategies) == 8
    assert sweep.scenario_count == 40
    assert sweep.directory == str(tmp_path / "sweep")


def test_a_number_a_list_and_a_range_are_values_of_an_axis(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "members = 3\npartitions = [20, 10]\nseed = { from = 2, to = 9, step = 3 }\nskew = 1")
    assert sweep.axes["members"] == (3,)
    assert sweep.axes["partitions"] == (10, 20)
    assert sweep.axes["seed"] == (2, 5, 8)
    assert sweep.axes["skew"] == (1.0,)


def test_every_setting_has_one_position(tmp_path: Path) -> None:
    text = "members = { from = 1, to = 7 }\npartitions = [10, 11, 12, 13]\nseed = [0, 1]\nracks = [0, 3]"
    sweep = sweep_of(tmp_path, text)
    settings = [tuple(sweep.setting(position).values()) for position in range(sweep.setting_count)]
    assert len(set(settings)) == sweep.setting_count == 7 * 4 * 2 * 2 * 6
    assert len({sweep.identity(sweep.setting(position), "range") for position in range(50)}) == 50


def test_consecutive_settings_are_a_sample_of_each_axis(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "members = { from = 1, to = 100 }\nseed = { from = 0, to = 9 }")
    for axis, values in sweep.axes.items():
        half = {sweep.setting(position)[axis] for position in range(sweep.setting_count // 2)}
        assert half == set(values)


def test_the_identity_of_a_scenario_does_not_depend_on_the_other_scenarios(tmp_path: Path) -> None:
    small = sweep_of(tmp_path, "members = 5\npartitions = 20")
    large = sweep_of(
        tmp_path, "members = [5, 6, 7]\npartitions = [10, 20]\nstrategy = ['sticky', 'range']\nseed = [0, 9]"
    )
    wanted = small.setting(0)
    assert any(dict(large.setting(position)) == dict(wanted) for position in range(large.setting_count))
    assert small.identity(wanted, "range") == large.identity(wanted, "range")
    assert small.case_random(wanted).random() == large.case_random(wanted).random()
    assert small.identity(wanted, "range") != small.identity(wanted, "sticky")


def test_strategies_and_failures_share_the_group_and_strategies_share_the_failure(tmp_path: Path) -> None:
    sweep = sweep_of(tmp_path, "")
    leaves = dict(sweep.setting(0)) | {"failure": "member-leaves"}
    joins = leaves | {"failure": "member-joins"}
    assert sweep.case_random(leaves).random() == sweep.case_random(joins).random()
    assert sweep.failure_random(leaves).random() != sweep.failure_random(joins).random()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("membrs = 3", "there is no key membrs: did you mean members?"),
        ("heatmap = { z = 'members' }", "there is no key heatmap.z: there are x, y"),
        ("seed = { from = 0, till = 3 }", "seed.to is missing"),
        ("seed = { from = 4, to = 3 }", "seed.to is 3, before the first number, 4"),
        ("members = 0", "members has 0: use 1 to 1,000,000"),
        ("members = []", "members is empty"),
        ("members = 2.5", "members has 2.5: use whole numbers"),
        ("members = true", "members has True, which is not a number: write a number, a list of numbers, or"),
        ("members = '12'", "members has '12', which is not a number: write a number"),
        ("members = [3, 3]", "members has 3 twice"),
        ("skew = nan", "skew has nan, which is not a number"),
        ("subscribed = 0", "subscribed has 0: use more than 0 to 1"),
        ("strategy = ['stiky']", "strategy has 'stiky': unknown assignor 'stiky' (did you mean sticky?)"),
        ("strategy = 'range'", "strategy must be a list of texts"),
        ("failure = ['member-leavs']", "failure has 'member-leavs': did you mean member-leaves?"),
        ("failure = ['rack-fails']", "failure has rack-fails, but racks has no number from 2"),
        ("partitions = 3\ntopics = 4", "partitions has 3, less than topics has, 4: each topic needs one"),
        ("heatmap = { x = 'member' }", "heatmap.x is 'member': did you mean members?"),
        ("heatmap = { x = 'members', y = 'members' }", "heatmap.y is 'members', as x is"),
        ("seed = { from = 1, to = 1000000 }", "seed has 1,000,000 numbers: use at most 100,000"),
        ("seed = { from = 1, to = 90000 }\nmembers = { from = 1, to = 9000 }", "seed has 90,000 values, which makes"),
        ("members = 1000000\ntopics = 100\nsubscribed = 0.5", "subscribed is less than 1 with up to 100,000,000 sub"),
        ("group = 'none.toml'", "none.toml: No such file or directory"),
        ("group = 'group.toml'", "group.toml:3: member c0 subscribes to the topic u, which does not exist"),
        ("group = 'good.toml'\nmembers = 3", "members is given by group, good.toml: leave out one of the two"),
        ("group = 'empty.toml'", "empty.toml, which has no member: write, for example, members = 5 there"),
        ("members = ", "not TOML: Invalid value"),
        ("batch = 0", "batch is at least 1, not 0"),
    ],
)
def test_a_wrong_file_is_one_sentence_that_names_the_key(tmp_path: Path, text: str, error: str) -> None:
    (tmp_path / "group.toml").write_text("topics = { t = 3 }\n[members]\nc0 = ['u']\n")
    (tmp_path / "good.toml").write_text("topics = { t = 3 }\nmembers = 2\n")
    (tmp_path / "empty.toml").write_text("topics = { t = 3 }\n")
    with pytest.raises(ConfigurationError) as caught:
        load_sweep(write_sweep(tmp_path, text))
    assert str(caught.value).startswith(f"{tmp_path / 'sweep.toml'}: ")
    assert error in str(caught.value)
    assert "\n" not in str(caught.value)
