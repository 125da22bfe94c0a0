"""Commands, options, extras, keys, modules, files, tests and messages that README.md and docs/*.md name exist."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import click
import pytest

from odradek.cli import main
from odradek.clients import Admin
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.producer.settings import ProducerSettings
from odradek.clients.zookeeper_consumer.settings import ZookeeperConsumerSettings
from odradek.config.broker import BrokerConfig
from odradek.config.definition import definitions
from odradek.config.group import GroupConfig
from odradek.config.replaced_keys import REPLACED_KEYS
from odradek.config.topic import TopicConfig
from odradek.config.unimplemented_keys import IGNORED_KEYS, unimplemented_keys
from tests.docs import public_names
from tests.docs.fenced_blocks import PAGES, ROOT, examples

CLIENTS: Final = (ConsumerSettings, ProducerSettings, ZookeeperConsumerSettings)
KEYS: Final = frozenset(
    name
    for names in (
        BrokerConfig.definitions(),
        TopicConfig.definitions(),
        GroupConfig.definitions(),
        REPLACED_KEYS,
        IGNORED_KEYS,
        unimplemented_keys(),
        *(definitions(each) for each in CLIENTS),
        *(each.absent_keys() for each in CLIENTS),
    )
    for name in names
)
ELSEWHERE: Final = {
    "api.version.request.timeout.ms": "librdkafka",
    "enable.sparse.connections": "librdkafka",
    "socket.timeout.ms": "librdkafka",
    "metadata.version": "a feature",
    **dict.fromkeys(
        ("eligible.leader.replicas.version", "kraft.version", "share.version", "streams.version"), "a feature"
    ),
    "transaction.version": "a feature",
    "odradek.version": "an entry of a broker's configuration",
    "odradek.errors.timestamp": "a header",
    "odradek.authorizer": "a logger",
    "odradek.replica_selectors": "an entry point",
    "asyncio.sleep": "Python",
    "asyncio.to_thread": "Python",
    "concurrent.futures": "Python",
    "df.write": "Spark",
    "consumer.state": "an attribute",
    "group.members": "an attribute",
    "group.partitions": "an attribute",
    "group.replica_racks": "an attribute",
}
"""Names with dots that are neither keys of Odradek nor modules."""
OTHER_ROOTS: Final = ("spark.", "source.", "sink.", "target.", "streams.", "restart.", "trigger.")
"""Spark's keys, and those of a pipeline's file, which `tests/pipelines/test_spark_page.py` compares."""
FILES: Final = (".py", ".sh", ".toml", ".yml", ".pem", ".cfg", ".properties", ".svg", ".md", ".json", ".sqlite")

_PROSE: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE: Final = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def code(page: Path) -> list[str]:
    """The pieces of code in a page's sentences."""
    return _CODE.findall(_PROSE.sub("", page.read_text()))


def commands(page: Path) -> Iterator[str]:
    """The commands of `odradek` in a page's sentences and in its blocks, but consoles, whose output is compared."""
    yield from (each for each in code(page) if each.startswith("odradek "))
    for example in examples(page):
        if example.language == "console" and example.is_run:
            continue
        lines = example.text.replace("\\\n", "").splitlines() if example.language in ("sh", "console", "text") else ()
        yield from (each.removeprefix("$ ") for each in lines if re.match(r"(\$ )?odradek [a-z-]", each))


def command_of(words: list[str]) -> tuple[list[click.Command], list[str]]:
    """The commands that the first words name, and the words after them."""
    found: list[click.Command] = [main]
    while words and isinstance(group := found[-1], click.Group):
        if words[0].startswith("-"):  # an option of the group, with its value
            words = words[2:]
            continue
        inner = group.get_command(click.Context(group), words[0])
        if inner is None:
            break
        found.append(inner)
        words = words[1:]
    return found, words


def options_of(found: list[click.Command]) -> set[str]:
    return {
        name
        for command in found
        for each in command.get_params(click.Context(command))
        for name in (*each.opts, *each.secondary_opts)
    }


def options_of_all(command: click.Command) -> set[str]:
    inner = command.list_commands(context := click.Context(command)) if isinstance(command, click.Group) else ()
    return options_of([command]).union(*(options_of_all(command.get_command(context, name)) for name in inner))


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_commands_and_their_options_exist(page: Path) -> None:
    for text in commands(page):
        words = shlex.split(text.replace("…", "").replace("'", ""), comments=True)[1:]
        found, rest = command_of([word for word in words if word != "|"])
        assert not isinstance(found[-1], click.Group) or not rest or not rest[0].islower(), text
        given = {word.strip("[],").partition("=")[0] for word in words if re.match(r"\[?-[-A-Za-z]", word)}
        if "odradek" not in words:  # not two commands in a line
            assert given <= options_of(found) | {"-h", "--help"}, text


def test_options_that_stand_alone_are_those_of_a_command() -> None:
    known = options_of_all(main)
    others = ("kafka-", "protoc", "useradd", "systemctl", "curl", "pip ")
    alone = [(page.name, text) for page in PAGES for text in code(page) if not text.startswith(("odradek", *others))]
    # The left column of this table is Kafka's tool.
    tool = (ROOT / "docs/groups.md").read_text().partition("| `kafka-consumer-groups` |")[2].partition("\n\n")[0]
    lost = {
        (page, option)
        for page, text in alone
        for option in re.findall(r"(?:^|[\s\[])(--[a-z][a-z-]+)", text)
        if option not in known and not (page == "groups.md" and f"`{text}`" in tool)
    }
    assert lost == {("performance.md", "--enable-optimizations")}  # CPython's


def test_extras_exist() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
    for page in PAGES:
        text = page.read_text()
        named = [name for found in re.findall(r"(?:'\.|odradek)\[([a-z,]+)\]", text) for name in found.split(",")]
        lists = re.findall(r"\bextras? ((?:`\w+`(?:, | and | or )?)+)", text)
        named += [name for found in lists for name in re.findall(r"`(\w+)`", found)]
        assert set(named) <= known, page.name


def _is_module(name: str) -> bool:
    """Whether a name with dots, of odradek's or after it, is a module or a name in one."""
    folder, parts = ROOT / "src/odradek", name.removeprefix("odradek.").split(".")
    for path in (folder / "/".join(parts[:-1]) / f"{parts[-1]}.py", folder / "/".join(parts) / "__init__.py"):
        if path.is_file():
            return True
    if len(parts) > 1 and list(folder.glob(f"**/{'/'.join(parts)}.py")):  # the page is about one of the folders
        return True
    # Read, not imported: some modules need packages that are not installed everywhere.
    places = (folder / f"{'/'.join(parts[:-1])}.py", folder / "/".join(parts[:-1]) / "__init__.py")
    return any(path.is_file() and re.search(rf"\b{parts[-1]}\b", path.read_text()) for path in places)


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_names_with_dots_are_keys_or_modules(page: Path) -> None:
    names = {text.partition("=")[0].removeprefix("kafka.") for text in code(page)}
    dotted = {name for name in names if re.fullmatch(r"[a-z][a-z0-9_-]*(\.[a-z0-9_-]+)+", name)}
    lost = {
        name
        for name in dotted - KEYS - ELSEWHERE.keys()
        if not name.startswith(OTHER_ROOTS) and not name.endswith(FILES)
    }
    lost |= {name for name in dotted if name.startswith("spark.reading")}
    assert {name for name in lost if not _is_module(name)} == set()


def test_files_and_tests_exist() -> None:
    sources = {
        path.name: path.read_text() for folder in ("tests", "conformance") for path in (ROOT / folder).rglob("*.py")
    }
    for page in PAGES:
        for text in code(page):
            if re.match(r"(src|tests|conformance|docs|deploy|bench|demo|examples)/[^\s…]+$", text):
                assert list(ROOT.glob(text.rstrip("/"))), f"{page.name}: {text}"
            elif re.fullmatch(r"test_\w+\.py", text):
                assert text in sources, f"{page.name}: {text}"
            elif re.fullmatch(r"test_\w+", text):
                assert any(f"def {text}(" in source for source in sources.values()), f"{page.name}: {text}"


def test_the_page_of_clients_has_each_method_of_the_admin_client() -> None:
    table = (ROOT / "docs/clients.md").read_text().partition("\n| method | command |\n")[2].partition("\n\n")[0]
    named = {name for row in table.splitlines() for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    methods = {name for name in dir(Admin) if not name.startswith("_") and callable(getattr(Admin, name))}
    assert named == methods - {"start", "close", "create_topic", "describe_group"}, "the last two are short for a list"


def test_messages_that_the_page_of_troubles_explains_are_printed() -> None:
    """Without the parts that differ: what is in capitals, and an ellipsis."""
    table = (
        (ROOT / "docs/troubleshooting.md")
        .read_text()
        .partition("## The broker does not start")[2]
        .partition("\n## ")[0]
    )
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    said = re.sub(r'"\s*\n\s*f?"', "", source)
    messages = [found for row in table.splitlines() for found in re.findall(r"^\| `([^`]+)`", row)]
    assert len(messages) > 5
    for message in messages:
        for part in re.split(r"…|\b[A-Z]\b", message):
            assert part.strip() in said or part.strip() == "Address already in use", message  # that is the system's


def test_a_public_name_changes_only_with_the_list_of_names() -> None:
    assert public_names.PATH.read_text() == public_names.text(), "python -m tests.docs.public_names writes it"
