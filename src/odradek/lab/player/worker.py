"""`python -m odradek.lab.player.worker`: plays scripts for the page, in a process that has imported the simulator.

Each line of standard input is a `PlayRequest` as JSON, each line of standard output its `PlayAnswer`. The process ends
with its standard input.
"""

import logging
import sys

from msgspec import Struct, json

from odradek.lab.case import LabError
from odradek.lab.costs import Generation
from odradek.lab.player.steps import Play


class PlayRequest(Struct, frozen=True, kw_only=True):
    """A script to play with one generation."""

    generation: Generation
    script: str
    partitions: int
    seed: int


class PlayAnswer(Struct, frozen=True, kw_only=True):
    """The play, or why there is none."""

    play: Play | None = None
    error: str = ""


def main() -> None:
    """Play the requests of standard input, until it ends."""
    from odradek.lab.player.playing import play

    # Members that are removed and brokers that die are the subject of a play, not a fault.
    logging.getLogger("odradek").setLevel(logging.CRITICAL)
    for line in sys.stdin.buffer:
        asked = json.decode(line, type=PlayRequest)
        try:
            made = play(asked.generation, asked.script, partitions=asked.partitions, seed=asked.seed)
            answer = PlayAnswer(play=made)
        except LabError as error:
            answer = PlayAnswer(error=str(error))
        sys.stdout.buffer.write(json.encode(answer) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
