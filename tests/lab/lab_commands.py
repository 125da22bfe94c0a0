"""`odradek lab` in this process."""

import json
from typing import Any

from click.testing import CliRunner

from odradek.cli import main


def lab(*arguments: str, code: int = 0) -> str:
    """Return the text of a command on stdout, or with another `code` than 0 on stderr."""
    result = CliRunner().invoke(main, ["lab", *arguments])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


def lab_json(*arguments: str) -> list[dict[str, Any]]:
    """Return the objects that a command prints with --json."""
    return [json.loads(line) for line in lab(*arguments, "--json").splitlines()]


def shares(*arguments: str) -> dict[str, dict[str, list[int]]]:
    """Return the assignment of `lab assign`, by member and topic."""
    return {each["member"]: each["partitions"] for each in lab_json("assign", *arguments)}
