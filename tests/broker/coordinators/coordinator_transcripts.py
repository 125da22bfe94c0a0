"""Transcripts of a coordinator, one file each: lines of a play, and, indented, what follows from each.

`ODRADEK_REWRITE_TRANSCRIPTS=1` writes what came back into the files; read the difference before you keep it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol


class Play(Protocol):
    """A coordinator and its clients, on which a transcript is performed."""

    lines: list[str]
    """The transcript so far, with the actual results."""

    def line(self, text: str) -> None:
        """Run one line of a transcript, and append what follows from it to `lines`."""


def transcripts(test_file: str) -> list[Path]:
    """Return the transcripts beside a test; there are some."""
    found = sorted((Path(test_file).parent / "transcripts").glob("*.txt"))
    assert len(found) >= 10
    return found


def check_transcript(path: Path, new_play: Callable[[], Play]) -> None:
    """Compare a transcript with what a new play answers."""
    expected = path.read_text()
    play = new_play()
    for line in expected.splitlines():
        if not line.startswith("    "):
            play.lines.append(line)
            play.line(line)
    actual = "\n".join(play.lines) + "\n"
    if os.environ.get("ODRADEK_REWRITE_TRANSCRIPTS"):
        path.write_text(actual)
    else:
        assert actual == expected
