"""Decorators that make tests of scenes: coroutine functions that are run in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from inspect import Parameter, Signature, signature
from itertools import takewhile
from typing import Any

from odradek.simulation.world import World

Scene = Callable[..., Coroutine[Any, Any, None]]
Test = Callable[..., None]
Run = Callable[[Any, Scene], object]


def played(*settings: Any, **options: Any) -> Any:
    """Make a test of a scene that the fixture `play` runs: `@played`, or `@played(brokers=3)` with options of `play`.

    `play` gives a scene's first argument, pytest the others.
    """
    if not options and len(settings) == 1 and callable(settings[0]):
        return played()(settings[0])
    return lambda scene: _test(scene, ["play"], lambda own, rest: own[0](rest, *settings, **options), given=1)


def in_world(
    *settings: Any, seed: int | None = None, of: type[World] = World, started: bool = True, **options: Any
) -> Callable[[Scene], Test]:
    """Return a decorator for scenes in a world `of(seed, *settings, **options)`, by default with the test's seed.

    The world is a scene's first argument; pytest gives the others. Without `started` a scene starts brokers itself.
    """

    def run(own: Sequence[int], scene: Scene) -> None:
        world = of(own[0] if seed is None else seed, *settings, **options)
        (world.play if started else world.run)(scene)

    return lambda scene: _test(scene, ["seed"] if seed is None else [], run, given=1)


def played_by(play: Callable[..., object], *settings: Any, **options: Any) -> Callable[[Scene], Test]:
    """Return a decorator for scenes that `play(…, scene, *settings, **options)` runs.

    The parameters of `play` before the scene are fixtures. It gives a scene's positional arguments; pytest gives those
    by keyword only.
    """
    before = takewhile(lambda name: name not in {"scene", "scenario"}, signature(play).parameters)
    return lambda scene: _test(scene, [*before], lambda own, rest: play(*own, rest, *settings, **options))


def in_simulation(scene: Scene) -> Test:
    """Make a test of a scene that the fixture `simulation` runs; pytest gives its arguments."""
    return _test(scene, ["simulation"], lambda own, rest: own[0].run(rest()), given=0)


def awaited(scene: Scene) -> Test:
    """Make a test of a coroutine function that runs on a real loop; pytest gives its arguments."""
    return _test(scene, [], lambda _, rest: asyncio.run(rest()), given=0)


def _test(scene: Scene, fixtures: Sequence[str], run: Run, given: int | None = None) -> Test:
    """Make a test that runs a scene, which gets `given` arguments from `run`, or all but those by keyword only."""
    parameters = list(signature(scene).parameters.values())
    if given is None:
        given = sum(each.kind is not Parameter.KEYWORD_ONLY for each in parameters)
    others = [each.name for each in parameters[given:]]

    @wraps(scene)
    def test(**values: Any) -> None:
        rest = {name: values[name] for name in others}
        run([values[name] for name in fixtures], lambda *arguments: scene(*arguments, **rest))

    names = dict.fromkeys([*fixtures, *others])
    test.__signature__ = Signature(  # type: ignore[attr-defined]
        [Parameter(name, Parameter.KEYWORD_ONLY) for name in names]
    )
    return test
