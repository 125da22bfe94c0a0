"""Tests that are scenes: coroutine functions that the fixture `play` of their room runs in virtual time."""

from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any


def played(scene: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Make a test of `scene`: `play` gives its first argument, pytest the others."""

    @wraps(scene)
    def test(play: Callable[..., object], **given: Any) -> None:
        play(lambda world: scene(world, **given))

    _, *others = signature(scene).parameters.values()
    play = Parameter("play", Parameter.POSITIONAL_OR_KEYWORD)
    test.__signature__ = Signature([play, *others])  # type: ignore[attr-defined]
    return test
