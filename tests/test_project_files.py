"""The lock, the nav of the site and the versions of Python say the same as the project."""

import re
import tomllib
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).resolve().parent.parent


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


@pytest.fixture(scope="module")
def lock() -> str:
    return (ROOT / "requirements.lock").read_text()


def test_the_lock_pins_every_package_with_a_hash_and_says_nothing_of_where_it_came_from(lock: str):
    requirements = [block for block in re.split(r"\n(?=\S)", lock) if block and not block.startswith("#")]
    pinned = re.compile(r"[A-Za-z0-9._-]+==\S+( ; .*)?( \\\n    --hash=sha256:[0-9a-f]{64})+")
    assert not [block.splitlines()[0] for block in requirements if not pinned.fullmatch(block.strip())]
    assert "//" not in lock
    assert "--index" not in lock


def test_the_lock_has_every_package_that_the_project_names(lock: str):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    wanted = [
        *project["project"]["dependencies"],
        *project["dependency-groups"]["dev"],
        *(name for extra in extras.values() for name in extra),
    ]
    names = {_normal(re.split(r"[\[<>=!~; ]", name)[0]) for name in wanted} - {"odradek"}
    locked = {_normal(line.partition("==")[0]) for line in lock.splitlines() if "==" in line}
    assert names <= locked


def test_every_page_of_the_docs_has_a_line_in_the_nav_of_the_site():
    nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    pages = {page.name for page in (ROOT / "docs").glob("*.md")}
    assert not [page for page in pages if not re.search(rf"[ -]{re.escape(page)}$", nav, re.M)], (
        "pages to add to nav in mkdocs.yml"
    )


def test_all_files_name_the_same_versions_of_python():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    prefix = "Programming Language :: Python :: "
    classifiers = [each.removeprefix(prefix) for each in project["project"]["classifiers"] if each.startswith(prefix)]
    (readme,) = re.findall(r"Python (\S+(?:, \S+)*) and (\S+) are\s+supported", (ROOT / "README.md").read_text())
    assert [*readme[0].split(", "), readme[1]] == classifiers
    lowest = classifiers[0]
    assert project["project"]["requires-python"] == f">={lowest}"
    assert project["tool"]["mypy"]["python_version"] == lowest
    assert project["tool"]["ruff"]["target-version"] == f"py{lowest.replace('.', '')}"
