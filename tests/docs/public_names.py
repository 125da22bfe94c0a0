"""Writes `public_names.txt`: each name that users import, with the public members of a class.

    python -m tests.docs.public_names        after a change that is meant; the change log tells users of it

A test compares the file with `text`. `clients/blocking/__init__.pyi` has the signatures of the clients.
"""

import importlib
import inspect
from pathlib import Path
from typing import Final

FACES: Final = ("clients", "clients.admin", "testing", "assignors", "partitioners", "lab", "model")
"""The packages whose `__all__` users read; elsewhere a signature may say enough."""
PATH: Final = Path(__file__).with_name("public_names.txt")


def text() -> str:
    """Return the file's text."""
    lines: list[str] = []
    for face in FACES:
        module = importlib.import_module(f"odradek.{face}")
        for name in module.__all__:
            value = getattr(module, name)
            members = sorted(vars(value)) if inspect.isclass(value) else []
            lines.append(" ".join([f"odradek.{face}.{name}", *(each for each in members if not each.startswith("_"))]))
    return "\n".join(sorted(lines)) + "\n"


if __name__ == "__main__":
    PATH.write_text(text())
