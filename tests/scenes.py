"""Tests that are scenes: coroutine functions that are run in virtual time."""

from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

from odradek.testing.world import World

Scene = Callable[..., Coroutine[Any, Any, None]]
Test = Callable[..., None]


def played(scene: Scene) -> Test:
    """Make a test of a scene that the fixture `play` runs. `play` gives its first argument, pytest the others."""
    return _test(scene, "play", lambda play, told: play(told))


def in_world(*settings: Any, **options: Any) -> Callable[[Scene], Test]:
    """Return a decorator like `played` for scenes that `World(seed, *settings, **options)` plays."""
    return lambda scene: _test(scene, "seed", lambda seed, told: World(seed, *settings, **options).play(told))


def played_by(play: Callable[..., object]) -> Callable[[Scene], Test]:
    """Return a decorator for scenes that `play(seed, scene)` runs; it gives all of their arguments."""
    return lambda scene: _test(scene, "seed", lambda seed, _: play(seed, scene), others=False)


def _test(scene: Scene, fixture: str, run: Callable[[Any, Scene], object], *, others: bool = True) -> Test:
    @wraps(scene)
    def test(**given: Any) -> None:
        run(given.pop(fixture), lambda first: scene(first, **given))

    of_pytest = list(signature(scene).parameters.values())[1:] if others else []
    own = Parameter(fixture, Parameter.POSITIONAL_OR_KEYWORD)
    test.__signature__ = Signature([own, *of_pytest])  # type: ignore[attr-defined]
    return test
