"""`dataclass` and `field` for all rooms: the standard ones, but that a constructor is written when it is first called.

The standard library compiles up to six methods for each class where it is defined: half a millisecond each, which was a
third of a broker's start, and most of these classes never have an instance. Here a constructor is compiled when there
is a first one, and the other methods are the same few functions for all classes. What comes out is a dataclass to
everybody: `fields`, `replace` and `asdict` take it, and a type checker reads the standard decorator (decision 15).
"""

import dataclasses
from collections.abc import Callable, Sequence
from inspect import Signature, get_annotations, signature
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeVar, cast, get_origin

T = TypeVar("T")
_Fields = dict[str, "dataclasses.Field[Any]"]

_MISSING: Final = dataclasses.MISSING
_FIELDS: Final = "__dataclass_fields__"
"""Where the standard library looks for a class's fields, its own behind the inherited ones."""


class _Parameters(NamedTuple):
    """What a class of the standard library's asks of those that it inherits from; of its own kind there are several."""

    eq: bool
    frozen: bool
    kw_only: bool
    init: bool = True
    repr: bool = True
    order: bool = False
    unsafe_hash: bool = False
    match_args: bool = True
    slots: bool = True
    weakref_slot: bool = False


def _dataclass(
    *, slots: bool, frozen: bool = False, kw_only: bool = False, eq: bool = True
) -> Callable[[type[T]], type[T]]:
    """`dataclasses.dataclass`, of which there is no more than is used here. Raises `TypeError`, and `ValueError`."""
    if not slots:
        raise TypeError("a dataclass without slots is one of the standard library's")

    def make(cls: type[T]) -> type[T]:
        own = _own_fields(cls, kw_only=kw_only)
        inherited: _Fields = {}
        for base in reversed(cls.__mro__[1:]):
            inherited |= getattr(base, _FIELDS, {})
        fields = inherited | own
        # A class is made a second time, since slots can't be added to one; and a default is not a slot's.
        left_out = own.keys() | {"__dict__", "__weakref__"}
        if eq and "__eq__" in cls.__dict__ and cls.__dict__.get("__hash__") is None:
            left_out |= {"__hash__"}  # Python put None there, since `__eq__` is the class's own
        namespace = {
            **_methods(fields, frozen=frozen, eq=eq),
            "__match_args__": tuple(name for name, each in fields.items() if each.init and not each.kw_only),
            **{name: value for name, value in cls.__dict__.items() if name not in left_out},
            "__qualname__": cls.__qualname__,
            "__slots__": tuple(name for name in own if name not in inherited),
            _FIELDS: fields,
            "__dataclass_params__": _Parameters(eq=eq, frozen=frozen, kw_only=kw_only),
            "__signature__": _SIGNATURE,
        }
        metaclass: Any = type(cls)
        made: Any = metaclass(cls.__name__, cls.__bases__, namespace)
        if "__init__" not in namespace:
            made.__init__ = _first_constructor(made, frozen=frozen)
        return cast("type[T]", made)

    return make


def _own_fields(cls: type, *, kw_only: bool) -> _Fields:
    own: _Fields = {}
    annotation: Any
    for name, annotation in get_annotations(cls).items():
        if annotation is ClassVar or get_origin(annotation) is ClassVar:
            continue
        default = cls.__dict__.get(name, _MISSING)
        each: Any = default if isinstance(default, dataclasses.Field) else dataclasses.field(default=default)
        has_default = each.default is not _MISSING or each.default_factory is not _MISSING
        if isinstance(annotation, dataclasses.InitVar) or each.hash is not None or (has_default and not each.init):
            raise TypeError(f"{cls.__qualname__}.{name} is what only dataclasses of the standard library know")
        if type(each.default).__hash__ is None:
            raise ValueError(f"all {cls.__qualname__} would share the {name} that is its default: use default_factory")
        each.name, each.type = name, annotation
        if each.kw_only is _MISSING:
            each.kw_only = kw_only
        each._field_type = dataclasses._FIELD  # type: ignore[attr-defined]  # else `fields` would not name it
        own[name] = each
    return own


# ---- methods that classes share --------------------------------------------------------------------------------------


def _methods(fields: _Fields, *, frozen: bool, eq: bool) -> dict[str, Any]:
    methods: dict[str, Any] = {"__repr__": _repr, "__replace__": dataclasses.replace}  # for `copy.replace`, since 3.13
    if eq:
        equal, hashed = _comparison([name for name, each in fields.items() if each.compare])
        methods |= {"__eq__": equal, "__hash__": hashed if frozen else None}
    if frozen:
        methods |= {
            "__setattr__": _refuse_to_set,
            "__delattr__": _refuse_to_delete,
            "__getstate__": _state,
            "__setstate__": _set_state,
        }
    return methods


@recursive_repr()
def _repr(self: Any) -> str:
    shown = [f"{name}={getattr(self, name)!r}" for name, each in self.__dataclass_fields__.items() if each.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _comparison(names: Sequence[str]) -> tuple[Callable[[Any, Any], Any], Callable[[Any], int]]:
    """`__eq__` and `__hash__` by the attributes of these names.

    They are compared as tuples are, on every Python. From 3.13 on, the standard library's compare one attribute after
    the other, which only a value that is not equal to itself can tell: NaN.
    """
    # Of one name `attrgetter` gives the value itself, and a tuple finds a value equal to itself even if that does not.
    values: Callable[[Any], Any]
    values = attrgetter(*names) if len(names) > 1 else lambda self: tuple(getattr(self, name) for name in names)

    def equal(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    def hashed(self: Any) -> int:
        return hash(values(self))

    return equal, hashed


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    del self, value
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    del self
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    """For `pickle` and `copy`, which would assign otherwise."""
    return [getattr(self, name) for name in self.__dataclass_fields__]


def _set_state(self: Any, state: Sequence[Any]) -> None:
    for name, value in zip(self.__dataclass_fields__, state, strict=True):
        object.__setattr__(self, name, value)


# ---- constructors ----------------------------------------------------------------------------------------------------


def _first_constructor(cls: Any, *, frozen: bool) -> Callable[..., None]:
    """Replaces itself by the one that it writes. Two threads may both write one; either will do."""

    def write_and_call(self: Any, *arguments: Any, **values: Any) -> None:
        write()
        cls.__init__(self, *arguments, **values)

    def write() -> None:
        cls.__init__ = _constructor(cls, frozen=frozen)

    write_and_call.write = write  # type: ignore[attr-defined]
    return write_and_call


class _Signature:
    """A class's, for `inspect.signature`: its constructor has to be written for that."""

    def __get__(self, value: object, cls: Any) -> Signature:
        if value is not None:
            raise AttributeError("only the class has a signature")
        if (write := getattr(cls.__init__, "write", None)) is not None:
            write()
        whole = signature(cls.__init__)
        return whole.replace(parameters=[*whole.parameters.values()][1:])


_SIGNATURE: Final = _Signature()


def _constructor(cls: Any, *, frozen: bool) -> Callable[..., None]:
    names: dict[str, Any] = {"_unset": _MISSING}
    positional, keywords, body = ["self"], ["*"], ["pass"]
    for name, each in cls.__dataclass_fields__.items():
        if not each.init:
            continue
        parameter = value = name
        if each.default is not _MISSING:
            names[f"_default_{name}"] = each.default
            parameter = f"{name}=_default_{name}"
        elif each.default_factory is not _MISSING:
            names[f"_make_{name}"] = each.default_factory
            parameter = f"{name}=_unset"
            value = f"_make_{name}() if {name} is _unset else {name}"
        (keywords if each.kw_only else positional).append(parameter)
        if frozen:  # past our `__setattr__`; a slot's own way is the shortest
            names[f"_set_{name}"] = getattr(cls, name).__set__
            body.append(f"_set_{name}(self, {value})")
        else:
            body.append(f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = positional + keywords if len(keywords) > 1 else positional
    source = f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(body)
    exec(compile(source, f"<constructor of {cls.__module__}.{cls.__qualname__}>", "exec"), names)
    constructor: Callable[..., None] = names["__init__"]
    constructor.__module__, constructor.__qualname__ = cls.__module__, f"{cls.__qualname__}.__init__"
    return constructor


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from dataclasses import field as field
else:
    dataclass, field = _dataclass, dataclasses.field
