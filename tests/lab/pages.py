"""The commands of the lab's pages. Run as a program (`make docs`), it runs them and writes what they print and draw."""

import re
import shlex
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"
_BLOCK: Final = re.compile(r"```(\w*)\n(.*?)```", re.DOTALL)


def pictures_of(page: str) -> set[str]:
    """Return the pictures that a page shows, such as `pictures/group.svg`."""
    return set(re.findall(r"^!\[[^\]]+\]\((\S+)\)$", (DOCS / page).read_text(), re.MULTILINE))


def commands_of(page: str) -> list[list[str]]:
    """Return the commands of a page that need no running cluster, without the word odradek."""
    lines = [line for _, block in _BLOCK.findall((DOCS / page).read_text()) for line in block.splitlines()]
    named = [line.removeprefix("$ ") for line in lines if re.match(r"(\$ )?odradek lab ", line)]
    return [shlex.split(line)[1:] for line in named if "localhost" not in line]


def made_by(command: list[str]) -> list[str]:
    """Return the pictures that a command makes."""
    return [file for option, file in pairwise(command) if option in ("--picture", "--timeline")]


def toml_of(page: str) -> str:
    """Return the file group.toml of a page."""
    return next((block for kind, block in _BLOCK.findall((DOCS / page).read_text()) if kind == "toml"), "")


def rerun(page: str, folder: Path) -> None:
    """Run a page's commands in a folder, and replace the output below those of its console blocks."""
    (folder / "group.toml").write_text(toml_of(page))
    printed = {shlex.join(command): _output(command, folder) for command in commands_of(page)}

    def renewed(block: re.Match[str]) -> str:
        examples = [example.partition("\n")[0] for example in re.split(r"\n(?=\$ )", block[2])]
        texts = [f"{line}\n{printed[shlex.join(shlex.split(line)[2:])].rstrip()}\n" for line in examples]
        return f"```console\n{chr(10).join(texts)}```"

    path = DOCS / page
    path.write_text(re.sub(r"```(console)\n(.*?)```", renewed, path.read_text(), flags=re.DOTALL))


def _output(command: list[str], folder: Path) -> str:
    print("odradek", shlex.join(command), flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "odradek", *command], cwd=folder, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def main() -> None:
    """Run the commands of all pages; pictures of docs/pictures are written there."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "docs").symlink_to(DOCS)
        for page in ("rebalancing.md", "performance.md", "lab.md"):
            rerun(page, folder)


if __name__ == "__main__":
    main()
