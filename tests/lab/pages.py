"""The commands of the lab's pages. Run as a program (`make docs`), it runs them and writes what they print and draw."""

import re
import shlex
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Final

from tests.docs.fenced_blocks import ENDLESS, examples, shell_steps

ROOT: Final = Path(__file__).parents[2]
DOCS: Final = ROOT / "docs"


def pictures_of(page: str) -> set[str]:
    """Return the pictures that a page shows, such as `pictures/group.svg`."""
    return set(re.findall(r"^!\[[^\]]+\]\((\S+)\)$", (DOCS / page).read_text(), re.MULTILINE))


def commands_of(page: str) -> list[list[str]]:
    """Return the commands of a page that need no running cluster, without the word odradek."""
    shell = [example for example in examples(DOCS / page) if example.language in ("sh", "console")]
    commands = [command for example in shell for command, _ in shell_steps(example)]
    return [shlex.split(each)[1:] for each in commands if each.startswith("odradek lab ") and "localhost" not in each]


def made_by(command: list[str]) -> list[str]:
    """Return the pictures that a command makes."""
    return [file for option, file in pairwise(command) if option in ("--picture", "--timeline")]


def rerun(page: str, folder: Path) -> None:
    """Run a page's commands in a folder, and replace the output below those of its console blocks."""
    for example in examples(DOCS / page, "toml"):
        (folder / example.title).write_text(example.text)
    printed = {shlex.join(command): _output(command, folder) for command in commands_of(page)}

    def renewed(block: re.Match[str]) -> str:
        lines = [example.partition("\n")[0] for example in re.split(r"\n(?=\$ )", block[1])]
        texts = [f"{line}\n{printed[shlex.join(shlex.split(line)[2:])].rstrip()}\n" for line in lines]
        return f"```console\n{chr(10).join(texts)}```"

    path = DOCS / page
    path.write_text(re.sub(r"```console\n(.*?)```", renewed, path.read_text(), flags=re.DOTALL))


def _output(command: list[str], folder: Path) -> str:
    print("odradek", shlex.join(command), flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "odradek", *command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=None if ENDLESS.match(shlex.join(["odradek", *command])) else subprocess.STDOUT,  # None: progress
        text=True,
        check=True,
    )
    return done.stdout


def main() -> None:
    """Run the commands of all pages; the pictures that pages show are written to docs/pictures."""
    for page in ("rebalancing.md", "performance.md", "transactions.md"):
        rerun(page, DOCS / "pictures")
    with tempfile.TemporaryDirectory() as scratch:
        rerun("lab.md", Path(scratch))


if __name__ == "__main__":
    main()
