"""Members have names of their client ids and the first characters of their member ids."""

from odradek.texts.member_names import MemberNames

UUID = "1f3cfb85-14c8-4871-8be4-d4bb5c03a68a"
OTHER = "1f3cfb99-14c8-4871-8be4-d4bb5c03a68a"


def test_names_are_long_enough_to_differ_within_a_group() -> None:
    names = MemberNames({f"a-{UUID}": "a", f"b-{UUID}": "b", "Qm2cS1b9T0y": "c", "x": ""})
    assert [names.text(each) for each in (f"a-{UUID}", "Qm2cS1b9T0y", "x")] == ["a-1f3c", "c-Qm2c", "member-x"]
    names = MemberNames({f"a-{UUID}": "a", f"a-{OTHER}": "a"})
    assert [names.text(each) for each in (f"a-{UUID}", f"a-{OTHER}")] == ["a-1f3cfb8", "a-1f3cfb9"]


def test_the_members_of_a_sentence_are_named_and_the_rest_stays() -> None:
    names = MemberNames({f"i-1-{UUID}": "my client", "Qm2cS1b9T0y": "c"})
    text = f"i-1-{UUID} joined, (gone-{OTHER} left): it waited for Qm2cS1b9T0y, 0.5 s of web-1-{UUID}."
    assert names.text(text) == "my client-1f3c joined, (gone-1f3c left): it waited for c-Qm2c, 0.5 s of web-1-1f3c."
    assert MemberNames().text("3 partitions") == "3 partitions"
