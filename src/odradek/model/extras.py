"""Names the extra of Odradek whose packages are missing."""

from collections.abc import Iterator
from contextlib import contextmanager

from odradek.model.errors import PreconditionError


def install_command(extra: str) -> str:
    """Return the command that installs Odradek with an extra of `pyproject.toml`."""
    return f"pip install 'odradek[{extra}]'"


@contextmanager
def packages_of(extra: str, purpose: str) -> Iterator[None]:
    """Raise `PreconditionError` with the command to install `extra` if an import in this block finds no package.

    `purpose` is what needs the package, in the plural: "pictures".
    """
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name == "odradek":
            raise
        raise PreconditionError(
            f"{purpose} need {name or 'a package'}, which is not installed: {install_command(extra)}"
        ) from None


__all__ = ["install_command", "packages_of"]
