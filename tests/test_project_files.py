"""The locks, the nav of the site and the versions of Python say the same as the project."""

import re
import subprocess
import tomllib
from itertools import combinations
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


LOCKS: Final = {path.name: path.read_text() for path in sorted(ROOT.glob("requirements*.lock"))}
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())


def _blocks(lock: str) -> list[str]:
    return [block.strip() for block in re.split(r"\n(?=\S)", lock) if block and not block.startswith("#")]


def _names(lock: str) -> set[str]:
    return {_normal(line.partition("==")[0]) for line in lock.splitlines() if "==" in line}


def _command(lock: str) -> str:
    """Return the command of CONTRIBUTING.md that makes the lock."""
    text = (ROOT / "CONTRIBUTING.md").read_text().replace("\\\n", "")
    (command,) = re.findall(rf"^ *(.*) -o {lock}$", text, re.MULTILINE)
    return command


def _wanted(lock: str) -> set[str]:
    """Return the packages of the extras and groups that the lock's command names."""
    command = _command(lock)
    extras, groups = PROJECT["project"]["optional-dependencies"], PROJECT["dependency-groups"]
    named = set(extras) if "--all-extras" in command else set(re.findall(r"--extra (\S+)", command))
    found = [each for extra in named for each in extras[extra]]
    if "pyproject.toml" in command:
        found += PROJECT["project"]["dependencies"]
    waiting = re.findall(r"--group (\S+)", command)
    while waiting:
        for each in groups[waiting.pop()]:
            if isinstance(each, str):
                found.append(each)
            else:
                waiting.append(each["include-group"])
    left_out = {_normal(each) for each in re.findall(r"--no-emit-package (\S+)", command)}
    return {_normal(re.split(r"[\[<>=!~; ]", name)[0]) for name in found} - {"odradek"} - left_out


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_pins_every_package_with_a_hash_and_says_nothing_of_where_it_came_from(name: str):
    pinned = re.compile(r"[A-Za-z0-9._-]+==\S+( ; .*)?( \\\n    --hash=sha256:[0-9a-f]{64})+")
    assert not [block.splitlines()[0] for block in _blocks(LOCKS[name]) if not pinned.fullmatch(block)]
    assert "//" not in LOCKS[name]
    assert "--index" not in LOCKS[name]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_has_every_package_that_the_project_names_for_it(name: str):
    assert _wanted(name) <= _names(LOCKS[name])


def test_a_package_has_one_version_in_all_locks():
    versions = {lock: dict(block.split("==", 1) for block in _blocks(text)) for lock, text in LOCKS.items()}
    assert sorted(versions) == [f"requirements-{name}.lock" for name in ("compiler", "demo", "test", "tools")]
    pairs = combinations(versions.values(), 2)
    assert not [name for one, other in pairs for name in one.keys() & other.keys() if one[name] != other[name]]


def test_the_tests_and_the_demo_install_no_tool_of_other_commands():
    tools = _wanted("requirements-tools.lock")
    assert {"basedpyright", "mkdocs-material", "playwright"} <= tools
    assert not [name for name, lock in LOCKS.items() if name != "requirements-tools.lock" and _names(lock) & tools]


def test_every_page_of_the_docs_has_a_line_in_the_nav_of_the_site():
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert not [page for page in pages if not re.search(rf"[ -]{re.escape(page)}$", nav, re.M)], (
        "pages to add to nav in mkdocs.yml"
    )


def test_all_files_name_the_same_versions_of_python():
    project = PROJECT
    prefix = "Programming Language :: Python :: "
    classifiers = [each.removeprefix(prefix) for each in project["project"]["classifiers"] if each.startswith(prefix)]
    (readme,) = re.findall(r"Python (\S+(?:, \S+)*) and (\S+) are\s+supported", (ROOT / "README.md").read_text())
    assert [*readme[0].split(", "), readme[1]] == classifiers
    lowest = classifiers[0]
    assert project["project"]["requires-python"] == f">={lowest}"
    assert project["tool"]["mypy"]["python_version"] == lowest
    assert project["tool"]["ruff"]["target-version"] == f"py{lowest.replace('.', '')}"


@pytest.mark.parametrize(
    "path", sorted((ROOT / "tests/simulation/mistakes").rglob("*.patch")), ids=lambda path: path.stem
)
def test_a_small_mistake_of_the_simulator_applies_to_the_source(path: Path):
    assert path.read_text().splitlines()[1].startswith("workload: ")
    assert not subprocess.run(["git", "apply", "--check", path], cwd=ROOT, check=False).returncode
