"""`dataclass` and `field` for all of Odradek: the standard decorator, but it compiles a constructor at its first call.

The standard library compiles up to six methods of each class at its definition: a third of a broker's start. Here only
the constructor is compiled; all classes share the other methods. `fields`, `replace` and `asdict` work, and type
checkers see the standard decorator (decision 15).
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
"""The attribute where the standard library looks for a class's fields, inherited ones first."""


class _Parameters(NamedTuple):
    """A class's `__dataclass_params__`, which the standard library reads from base classes."""

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
    """Implement a part of `dataclasses.dataclass`. Raise `TypeError` or `ValueError` for the rest."""
    if not slots:
        raise TypeError("a dataclass without slots is one of the standard library's")

    def make(cls: type[T]) -> type[T]:
        own = _own_fields(cls, kw_only=kw_only)
        inherited: _Fields = {}
        for base in reversed(cls.__mro__[1:]):
            inherited |= getattr(base, _FIELDS, {})
        fields = inherited | own
        # The class is created again, since slots cannot be added to a class, and a default cannot be a slot.
        left_out = own.keys() | {"__dict__", "__weakref__"}
        if eq and "__eq__" in cls.__dict__ and cls.__dict__.get("__hash__") is None:
            left_out |= {"__hash__"}  # Python sets it to None, since the class has an `__eq__`
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
    """Return `__eq__` and `__hash__` over the attributes `names`, which are compared as one tuple.

    The standard library's `__eq__` differs for NaN since 3.13.
    """
    # For one name `attrgetter` returns the bare value, and only a tuple finds a NaN equal to itself.
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
    """Return the state for `pickle` and `copy`; otherwise they would assign attributes, which frozen classes refuse."""
    return [getattr(self, name) for name in self.__dataclass_fields__]


def _set_state(self: Any, state: Sequence[Any]) -> None:
    for name, value in zip(self.__dataclass_fields__, state, strict=True):
        object.__setattr__(self, name, value)


# ---- constructors ----------------------------------------------------------------------------------------------------


def _first_constructor(cls: Any, *, frozen: bool) -> Callable[..., None]:
    """Return a constructor that compiles the real one at its first call. Two threads may both compile it."""

    def write_and_call(self: Any, *arguments: Any, **values: Any) -> None:
        write()
        cls.__init__(self, *arguments, **values)

    def write() -> None:
        cls.__init__ = _constructor(cls, frozen=frozen)

    write_and_call.write = write  # type: ignore[attr-defined]
    return write_and_call


class _Signature:
    """A descriptor that compiles a class's constructor and returns its signature, for `inspect.signature`."""

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
        if frozen:  # bypasses `__setattr__`; the slot's own setter is the fastest
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
