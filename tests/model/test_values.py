"""Our `dataclass` beside the standard library's: the same classes, declared by both, must behave alike."""

import copy
import dataclasses
import inspect
import pickle
import sys
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest

from odradek.model import values


def _declare(decorators: Any) -> SimpleNamespace:
    """A few classes of all the kinds that there are, made by `decorators.dataclass` and `.field`."""
    dataclass, field = decorators.dataclass, decorators.field

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Frozen:
        """With everything."""

        kind: ClassVar[str] = "frozen"
        name: str
        size: "int | None" = None
        tags: list[str] = field(default_factory=list)
        note: str = field(default="", compare=False, repr=False)

        @property
        def length(self) -> int:
            return len(self.name)

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Child(Frozen):
        """Inherits, and has a default of its own for what is there already."""

        size: int | None = 3
        weight: float

    @dataclass(slots=True)
    class Open:
        """Takes its values by place, too, and makes one of them of others."""

        left: int
        right: int = 1
        total: int = field(init=False)
        extra: int = field(default=0, kw_only=True)

        def __post_init__(self) -> None:
            self.total = self.left + self.right + self.extra

    @dataclass(slots=True, eq=False)
    class Unlike:
        """Equal to nothing but itself."""

        value: int = 0

    @dataclass(frozen=True, slots=True)
    class One:
        """A single value."""

        value: object

    @dataclass(frozen=True, slots=True)
    class Nothing:
        """No value."""

    return SimpleNamespace(Frozen=Frozen, Child=Child, Open=Open, Unlike=Unlike, One=One, Nothing=Nothing)


OURS, STANDARD = _declare(values), _declare(dataclasses)
NOT_A_NUMBER = float("nan")


def _outcome(run: Any, classes: SimpleNamespace) -> object:
    """Return the outcome as text, since the classes of the two sides differ."""
    try:
        return repr(run(classes))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize(
    "run",
    [
        lambda c: c.Frozen(name="a"),
        lambda c: c.Frozen(name="a", size=2, tags=["x"], note="unseen"),
        lambda c: c.Frozen(),
        lambda c: c.Frozen("a"),
        lambda c: c.Frozen(name="a", colour=1),
        lambda c: c.Frozen(name="abc").length,
        lambda c: (c.Frozen.kind, c.Frozen.__doc__, c.Frozen.__match_args__, c.Open.__match_args__),
        lambda c: c.Frozen(name="a").tags is c.Frozen(name="a").tags,
        lambda c: c.Child(name="a", weight=1.5),
        lambda c: c.Child(name="a"),
        lambda c: isinstance(c.Child(name="a", weight=1.0), c.Frozen),
        lambda c: (c.Open(1), c.Open(1, 2, extra=3), c.Open(left=4)),
        lambda c: c.Open(1, 2, 3),
        lambda c: c.Nothing(),
        lambda c: c.Frozen(name="a") == c.Frozen(name="a", note="not compared"),
        lambda c: c.Frozen(name="a") == c.Frozen(name="b"),
        lambda c: c.Frozen(name="a", size=3) == c.Child(name="a", weight=1.0),
        lambda c: c.Frozen(name="a") == "a",
        lambda c: (c.Open(1) == c.Open(1), c.Open(1) == c.Open(2), c.Nothing() == c.Nothing()),
        lambda c: (c.Unlike() == c.Unlike(), {c.Unlike()} == set()),
        lambda c: (c.One(1) == c.One(1.0), c.One((1,)) == c.One(1)),
        lambda c: hash(c.One((1, "a"))) == hash(c.One((1, "a"))),
        lambda c: {c.One(1): "found"}[c.One(1)],
        lambda c: hash(c.Nothing()) == hash(c.Nothing()),
        lambda c: hash(c.Frozen(name="a")),
        lambda c: hash(c.Open(1)),
        lambda c: setattr(c.One(1), "value", 2),
        lambda c: delattr(c.One(1), "value"),
        lambda c: setattr(c.Open(1), "other", 2),
        lambda c: [each.name for each in dataclasses.fields(c.Child)],
        lambda c: [(each.name, each.type, each.kw_only, each.init) for each in dataclasses.fields(c.Open)],
        lambda c: dataclasses.replace(c.Child(name="a", weight=1.0), size=9),
        lambda c: dataclasses.replace(c.Open(1, 2), total=9),
        lambda c: dataclasses.replace(c.Open(1, 2), left=5),
        lambda c: (dataclasses.asdict(c.Frozen(name="a")), dataclasses.astuple(c.One(c.One(1)))),
        lambda c: dataclasses.is_dataclass(c.Frozen),
        lambda c: (copy.copy(c.Frozen(name="a")), copy.deepcopy(c.Child(name="a", weight=1.0)), copy.copy(c.Open(1))),
        lambda c: c.One.__init__.__qualname__ == c.One.__qualname__ + ".__init__" if c.One(1) else None,
    ],
)
def test_a_dataclass_does_what_one_of_the_standard_library_does(run):
    assert _outcome(run, OURS) == _outcome(run, STANDARD)


def test_values_are_compared_as_tuples_are_on_every_python():
    assert (NOT_A_NUMBER,) == (NOT_A_NUMBER,)
    assert OURS.One(NOT_A_NUMBER) == OURS.One(NOT_A_NUMBER)


def test_a_value_can_be_replaced_the_way_that_copy_does_it():
    assert repr(OURS.Child(name="a", weight=1.0).__replace__(size=9)) == repr(
        dataclasses.replace(STANDARD.Child(name="a", weight=1.0), size=9)
    )
    if sys.version_info >= (3, 13):
        assert copy.replace(OURS.One(1), value=2) == OURS.One(2)


def test_a_value_that_contains_itself_can_be_shown():
    for classes in (OURS, STANDARD):
        tags: list[object] = []
        value = classes.One(tags)
        tags.append(value)
        assert repr(value).endswith("One(value=[...])")


@values.dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A value that another process makes without its constructor."""

    name: str
    size: int = 0


def test_a_frozen_value_is_pickled_and_made_again():
    value = Sent(name="a", size=3)
    assert pickle.loads(pickle.dumps(value)) == value


def test_a_constructor_is_written_when_the_first_value_is_made_and_only_then():
    @values.dataclass(frozen=True, slots=True)
    class Late:
        value: int

    assert {Late(1), Late(2)} == {Late(2), Late(1)}, "twice of each, so that it is used after it was written"
    written = Late.__init__.__code__
    Late(3)
    assert Late.__init__.__code__ is written
    assert written.co_filename == f"<constructor of {__name__}.{Late.__qualname__}>"


def test_a_class_that_is_only_declared_has_nothing_compiled():
    code: list[str] = []
    module = ModuleType("declared")

    def count(*arguments: Any, **options: Any) -> CodeType:
        code.append(str(arguments[1]))
        return compile(*arguments, **options)

    values.__dict__["compile"] = count
    try:
        module.declared = _declare(values)  # type: ignore[attr-defined]
        assert code == []
        module.declared.Open(1)
        assert len(code) == 1
    finally:
        del values.__dict__["compile"]


@pytest.mark.parametrize(
    ("error", "annotation", "default"),
    [
        (ValueError, list[str], []),
        (TypeError, dataclasses.InitVar[int], 1),
        (TypeError, int, dataclasses.field(default=1, hash=False)),
        (TypeError, int, dataclasses.field(default=1, init=False)),
    ],
)
def test_unknown_kinds_of_fields_are_refused_at_their_definition(error, annotation, default):
    with pytest.raises(error):
        values.dataclass(slots=True)(type("Odd", (), {"__annotations__": {"odd": annotation}, "odd": default}))


def test_slots_are_not_left_out():
    with pytest.raises(TypeError):
        values.dataclass(slots=False)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_class_with_an_equality_of_its_own_is_hashed_as_the_standard_library_does_it(frozen):
    def declare(dataclass):
        @dataclass(frozen=frozen, slots=True)
        class Value:
            number: int

            def __eq__(self, other):
                return True

        @dataclass(frozen=frozen, slots=True, eq=False)
        class Other:
            number: int

            def __eq__(self, other):
                return True

        @dataclass(frozen=frozen, slots=True)
        class Third:
            number: int

            def __eq__(self, other):
                return True

            def __hash__(self):
                return 7

        return [each.__hash__ and hash(each(3)) for each in (Value, Other, Third)]

    assert declare(values.dataclass) == declare(dataclasses.dataclass)


def test_a_class_of_the_standard_library_may_inherit():
    @values.dataclass(frozen=True, slots=True, kw_only=True)
    class Ours:
        first: int

    @dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
    class Theirs(Ours):
        second: int = 2

    assert dataclasses.astuple(Theirs(first=1)) == (1, 2)
    with pytest.raises(TypeError, match="non-frozen"):
        dataclasses.dataclass(type("Open", (Ours,), {}))


def test_a_signature_is_there_before_the_first_value():
    @values.dataclass(frozen=True, slots=True)
    class Value:
        first: int
        second: int = 2
        third: int = values.field(default=3, kw_only=True)

    class Own(Value):
        __slots__ = ()

        def __init__(self, only):
            super().__init__(only)

    class Same(Value):
        __slots__ = ()

    assert str(inspect.signature(Value)) == "(first, second=2, *, third=3)"
    assert str(inspect.signature(Same)) == "(first, second=2, *, third=3)"
    assert str(inspect.signature(Own)) == "(only)"
    assert Own(1) == Own(1) != Value(1)
    assert Same(1).third == 3
