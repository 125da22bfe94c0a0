"""A signature says which parts of a broker a handler may touch: the broker has them, and the handler uses them all."""

import ast
import importlib
import inspect
from collections.abc import Callable
from typing import Any, Final

import pytest

from odradek.broker import interfaces as parts
from odradek.broker.observing.observation import observe
from odradek.broker.serving.apis import HANDLERS as PACKAGE
from odradek.broker.serving.apis import apis
from odradek.simulation.world import World
from tests.broker.handlers.served_handlers import HANDLERS
from tests.world.scenes import played

FUNCTIONS: Final[tuple[Callable[..., Any], ...]] = (*HANDLERS, observe)


def protocol_of(function: Callable[..., Any]) -> type:
    """Return the protocol of the parameter `broker`, which is a class at run time, too."""
    protocol = inspect.signature(function).parameters["broker"].annotation
    assert isinstance(protocol, type), f"{protocol!r} is a name that is known to mypy only"
    assert getattr(protocol, "_is_protocol", False), f"{protocol} is not a protocol"
    return protocol


def parts_of(function: Callable[..., Any]) -> set[str]:
    """Return the names of the parts that a function asks for."""
    return {name for each in protocol_of(function).__mro__ for name in vars(each) if not name.startswith("_")}


def parts_used(module: str) -> set[str]:
    """Return the names after `broker.` and `self._broker.` in a module."""
    nodes = ast.walk(ast.parse(inspect.getsource(importlib.import_module(module))))
    attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
    return {node.attr for node in attributes if ast.unparse(node.value) in {"broker", "self._broker"}}


def test_mypy_checks_the_handler_of_every_api():
    assert {each.__module__ for each in HANDLERS} == {f"{PACKAGE}.{api.module}" for api in apis().values()}


@played
async def test_a_broker_has_every_part_that_a_handler_names(world: World) -> None:
    broker = await world.start()
    missing = {each.__module__: [name for name in parts_of(each) if not hasattr(broker, name)] for each in FUNCTIONS}
    assert not {module: names for module, names in missing.items() if names}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda each: each.__module__.rpartition(".")[2])
def test_every_part_that_a_handler_names_is_used(function: Callable[..., Any]):
    declared_in = protocol_of(function).__module__
    user = function.__module__ if declared_in == parts.__name__ else declared_in
    assert parts_of(function) <= parts_used(user)
