"""Decorators that make tests of scenes: coroutine functions that are run in virtual time."""

from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

from odradek.simulation.world import World

Scene = Callable[..., Coroutine[Any, Any, None]]
Test = Callable[..., None]


def played(scene: Scene) -> Test:
    """Make a test of a scene that the fixture `play` runs. `play` gives its first argument, pytest the others."""
    return _test(scene, "play", lambda play, rest: play(rest))


def in_world(*settings: Any, seed: int | None = None, **options: Any) -> Callable[[Scene], Test]:
    """Return a decorator for scenes that `World(seed, *settings, **options)` plays, by default with the test's seed.

    The world is a scene's first argument; pytest gives the others.
    """
    if seed is None:
        return lambda scene: _test(scene, "seed", lambda own, rest: World(own, *settings, **options).play(rest))
    return lambda scene: _test(scene, None, lambda _, rest: World(seed, *settings, **options).play(rest))


def played_by(play: Callable[..., object]) -> Callable[[Scene], Test]:
    """Return a decorator for scenes that `play(scene)` or `play(seed, scene)` runs; it gives all of their arguments."""
    if "seed" in signature(play).parameters:
        return lambda scene: _test(scene, "seed", lambda seed, _: play(seed, scene), others=False)
    return lambda scene: _test(scene, None, lambda _seed, _rest: play(scene), others=False)


def _test(scene: Scene, fixture: str | None, run: Callable[[Any, Scene], object], *, others: bool = True) -> Test:
    @wraps(scene)
    def test(**given: Any) -> None:
        run(given.pop(fixture) if fixture else None, lambda first: scene(first, **given))

    own = [] if fixture is None else [Parameter(fixture, Parameter.POSITIONAL_OR_KEYWORD)]
    of_pytest = list(signature(scene).parameters.values())[1:] if others else []
    test.__signature__ = Signature([*own, *of_pytest])  # type: ignore[attr-defined]
    return test
