"""A hook of mkdocs (`make site`): generates the references from their definitions, and adapts pages written for GitHub.

The generated pages are never files: each build makes them anew from the commands, the configuration keys, the metrics
and the classes. README.md, CHANGELOG.md and CONTRIBUTING.md of the project's folder are pages of the site, too.
"""

import importlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

from odradek.broker.apis import APIS, Permission
from odradek.broker.observing.catalog import ALL
from odradek.cli import main
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.producer.settings import ProducerSettings
from odradek.clients.settings import ClientSettings
from odradek.clients.zookeeper_consumer.settings import ZookeeperConsumerSettings
from odradek.config import broker as broker_keys
from odradek.config.broker import BrokerConfig
from odradek.config.definition import Definition, definitions
from odradek.config.dynamic import DYNAMIC
from odradek.config.group import GroupConfig
from odradek.config.replaced_keys import REPLACED_KEYS
from odradek.config.topic import TopicConfig
from odradek.config.unimplemented_keys import IGNORED_KEYS, unimplemented_keys
from odradek.model import OdradekError

ROOT: Final = Path(__file__).parents[1]
API: Final = {
    "Clients": "odradek.clients",
    "Administration": "odradek.clients.admin",
    "Assignors": "odradek.assignors",
    "Testing": "odradek.testing",
    "The lab": "odradek.lab",
    "Shared values": "odradek.model",
}
"""Heading of the Python API → the module whose `__all__` it describes."""
CLIENTS: Final[dict[str, type[ClientSettings]]] = {
    "All clients": ClientSettings,
    "Producer": ProducerSettings,
    "Consumer": ConsumerSettings,
    "ZookeeperConsumer": ZookeeperConsumerSettings,
}
_FOLDERS: Final = {"README.md": "index.md", "CHANGELOG.md": "changes.md", "CONTRIBUTING.md": "contributing.md"}
_BROKER_KEYS: Final = """
In the file of `odradek serve --config`, or as `-o KEY=VALUE`. A dynamic key changes while brokers run:
`odradek configs alter`. Names, defaults and limits are Kafka's where the column Kafka is empty.
"""
_FROM_THE_NETWORK: Final = re.compile(
    r"<(?:script|img|iframe)[^>]* src=\"?https?:[^>]*>|<link[^>]* rel=\"?(?:stylesheet|preconnect)[^>]*https?:[^>]*>"
)
_EMPTY_HEAD: Final = re.compile(r"<thead>\s*<tr>\s*(?:<th[^>]*></th>\s*)+</tr>\s*</thead>")
_CELL: Final = re.compile(r"<td[^>]*>.*?</td>", re.DOTALL)
_CODE: Final = re.compile(r"<code>([^<]*)</code>")
_BETWEEN_WORDS: Final = re.compile(r"(?<=[^._,=/:])([._,=/:]+)(?=[^._,=/:])")
_FENCES: Final = re.compile(r"(^```.*?^```$)", re.MULTILINE | re.DOTALL)


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a Markdown table; bars outside of code are escaped."""
    lines = [list(head)]
    lines.append(["---"] * len(lines[0]))
    lines += [[_cell(str(cell)) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    pieces = " ".join(text.split()).split("`")
    return "`".join(piece if number % 2 else piece.replace("|", "\\|") for number, piece in enumerate(pieces))


def commands() -> str:
    """Return every command of `odradek` with its arguments and options."""
    return "\n".join(["# Commands\n", *_command(main, ("odradek",), None)])


def _command(command: click.Command, path: tuple[str, ...], parent: click.Context | None) -> Iterator[str]:
    context = click.Context(command, parent=parent, info_name=path[-1])
    yield f"{'#' * min(len(path), 4)}# {' '.join(path)}\n"
    yield f"```text\n{context.command_path} {' '.join(command.collect_usage_pieces(context))}\n```\n"
    yield (command.help or "").replace("\b", "").strip() + "\n"
    rows = [_parameter(each, context) for each in command.get_params(context) if not getattr(each, "hidden", False)]
    if rows:
        yield table(["option", "value", "default", ""], [row for row in rows if "--help" not in row[0]])
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            # The benchmarks are in the source tree only.
            if inner is not None and (*path, name) != ("odradek", "bench"):
                yield from _command(inner, (*path, name), context)


def _parameter(parameter: click.Parameter, context: click.Context) -> tuple[str, str, str, str]:
    if isinstance(parameter, click.Argument):
        return f"`{parameter.make_metavar(context)}`", "", "", "" if parameter.required else "optional"
    names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    is_flag = getattr(parameter, "is_flag", False)
    default = parameter.to_info_dict().get("default")
    shown = "" if is_flag or default in (None, (), []) or "Sentinel" in repr(default) else f"`{default}`"
    text = getattr(parameter, "help", None) or ""
    return names, "" if is_flag else f"`{parameter.make_metavar(context)}`", shown, text


def _keys(known: Mapping[str, Definition], more: Callable[[Definition], tuple[str, ...]], *head: str) -> str:
    rows = []
    for name in sorted(known):
        key = known[name]
        if not key.internal:
            default = key.format(key.default)
            shown = "" if default is None else f"`{default}`" if default else "empty"
            rows.append((f"`{name}`", _text(key), key.type.name.lower(), shown, _limits(key), *more(key)))
    return table(["key", "meaning", "type", "default", "values", *head], rows)


def _limits(key: Definition) -> str:
    if key.choices:
        return ", ".join(f"`{choice}`" if choice else "empty" for choice in key.choices)
    if key.minimum is None:
        return ""
    most = key.maximum is not None and key.maximum < 2**31 - 1
    return f"{key.minimum:,} to {key.maximum:,}" if most else f"from {key.minimum:,}"


def _text(key: Definition) -> str:
    supported = ", ".join(f"`{key.format(value)}`" for value in key.honoured)
    return f"{key.doc} Only {supported} here: {key.reason}." if supported else key.doc


def _deviations() -> dict[str, str]:
    """Return what Kafka says differently, by key, from the table in the docstring of the broker's keys."""
    found: dict[str, str] = {}
    for line in (broker_keys.__doc__ or "").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 4 and cells[0].startswith("`"):
            name = cells[0].strip("`")
            for each in (
                [name] if "{" not in name else [name.replace("{send,receive}", way) for way in ("send", "receive")]
            ):
                found[each] = f"{cells[1]}: {cells[3]}" if cells[1] != "-" else f"not in Kafka: {cells[3]}"
    unknown = found.keys() - BrokerConfig.definitions().keys()
    if unknown:
        raise PluginError(f"the deviations of config/broker.py name unknown keys: {sorted(unknown)}")
    return found


def broker_page() -> str:
    """Return every key of a broker, also those without effect and those that are refused."""
    deviations = _deviations()
    known = BrokerConfig.definitions()
    rest = [
        (
            f"`{name}`",
            f"`{key.definition.format(key.definition.default)}`",
            "yes" if key.definition.honoured else "",
            key.definition.reason,
        )
        for name, key in sorted(unimplemented_keys().items())
    ]
    return "\n".join(
        [
            "# Broker keys\n",
            _BROKER_KEYS,
            _keys(
                known,
                lambda key: ("yes" if key.name in DYNAMIC else "", deviations.get(key.name, key.kafka)),
                "dynamic",
                "Kafka",
            ),
            "## Refused keys\n",
            table(["key", "instead"], [(f"`{name}`", text) for name, text in sorted(REPLACED_KEYS.items())]),
            "## Keys without effect\n",
            "Accepted in a file, so that a production file starts a broker; the log warns of other values.\n",
            table(["key", "why"], [(f"`{name}`", text) for name, text in sorted(IGNORED_KEYS.items())]),
            table(["key", "default", "only its default", "why"], rest),
        ]
    )


def permissions_page() -> str:
    """Return the permissions that each request needs."""

    def cell(permissions: Iterable[Permission]) -> str:
        return ", ".join(f"{each.operation.name} on {each.resource_type.name}" for each in permissions)

    rows = [(each.key.name, cell(each.request), cell(each.items)) for _, each in sorted(APIS.items())]
    head = "The whole request needs one of the first ones; each resource that it names needs those that concern it.\n"
    return "\n".join(["# Permissions of requests\n", head, table(["request", "one of", "for each resource"], rows)])


def topic_page() -> str:
    """Return every key of a topic and of a group."""

    def like(key: Definition) -> tuple[str, ...]:
        return (", ".join(f"`{name}`" for name, _ in key.synonyms),)

    head = (
        'Without a value, a key has that of the first broker key in the column "from" that is set. All are dynamic.\n'
    )
    return "\n".join(
        [
            "# Topic and group keys\n",
            head,
            "## Topics\n",
            "`odradek topics create --config KEY=VALUE`, `odradek configs alter --topic NAME --set KEY=VALUE`.\n",
            _keys(TopicConfig.definitions(), like, "from"),
            "## Groups\n",
            "`odradek configs alter --group NAME --set KEY=VALUE`, for groups of the consumer protocol.\n",
            _keys(GroupConfig.definitions(), like, "from"),
        ]
    )


def client_page() -> str:
    """Return every key of the clients, and Kafka's keys that they lack."""
    common = definitions(ClientSettings)
    parts = [
        "# Client keys\n",
        "Keyword arguments with `_` for `.`, or lines of a file; as in Kafka where the column Kafka is empty.\n",
    ]
    for title, cls in CLIENTS.items():
        known = {name: key for name, key in definitions(cls).items() if cls is ClientSettings or name not in common}
        absent = [
            (f"`{name}`", why)
            for name, why in sorted(cls.absent_keys().items())
            if cls is ClientSettings or name not in ClientSettings.absent_keys()
        ]
        parts += [
            f"## {title}\n",
            _keys(known, lambda key: (key.kafka,), "Kafka"),
            *(
                [f"### Not in Odradek: {title}\n", table(["Kafka's key", "why, or what instead"], absent)]
                if absent
                else []
            ),
        ]
    return "\n".join(parts)


def metrics_page() -> str:
    """Return every metric of the catalogue."""
    rows = [
        (
            f"`{each.exposed_name}`",
            each.kind.value,
            ", ".join(each.labels),
            f"`{each.mbean}`" if each.mbean else "",
            each.help,
        )
        for each in ALL
    ]
    return "# Metrics\n\nHow they are served: [metrics, probes and the log](../metrics.md).\n\n" + table(
        ["metric", "type", "labels", "Kafka's MBean", ""], rows
    )


def python_page() -> str:
    """Return the public classes and functions for mkdocstrings, and the tree of errors."""
    parts = ["# Python API\n", "## Errors\n", table(["error", "of", "retriable", ""], _errors(OdradekError))]
    shown: set[object] = set()
    for title, module_name in API.items():
        module = importlib.import_module(module_name)
        parts.append(f"## {title}: `{module_name}`\n")
        for name in module.__all__:
            value = getattr(module, name)
            home = getattr(value, "__module__", "")
            if home.startswith("odradek.") and value not in shown:
                shown.add(value)
                parts.append(f"::: {home}.{value.__qualname__}\n")
    return "\n".join(parts)


def _errors(cls: type[OdradekError]) -> Iterator[tuple[str, str, str, str]]:
    summary = (cls.__doc__ or "").split("\n\n")[0]
    always = cls.retriable if isinstance(cls.retriable, bool) else None
    retriable = "by its error code" if always is None else "yes" if always else ""
    yield f"`{cls.__name__}`", f"`{cls.__bases__[0].__name__}`", retriable, summary
    for each in sorted(cls.__subclasses__(), key=lambda found: found.__name__):
        if each.__module__.startswith("odradek.") and not each.__name__.startswith("_"):
            yield from _errors(each)


def decisions_page() -> str:
    """Return the list of decisions."""
    pages = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    titles = [(page.name, page.read_text().split("\n", 1)[0].lstrip("# ")) for page in pages]
    return "# Decisions\n\n" + "\n".join(f"- [{title}]({name})" for name, title in titles) + "\n"


GENERATED: Final[dict[str, Callable[[], str]]] = {
    "reference/commands.md": commands,
    "reference/broker-keys.md": broker_page,
    "reference/topic-keys.md": topic_page,
    "reference/client-keys.md": client_page,
    "reference/permissions.md": permissions_page,
    "reference/python.md": python_page,
    "reference/metrics.md": metrics_page,
    "decisions/index.md": decisions_page,
    **{page: (ROOT / name).read_text for name, page in _FOLDERS.items()},
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    for path, make in GENERATED.items():
        files.append(File.generated(config, path, content=make()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links out of `docs` into links of the site or names of files; put empty lines before lists and tables."""
    path = page.file.src_path
    pieces = _FENCES.split(markdown)
    for number in range(0, len(pieces), 2):
        text = pieces[number]
        if path in _FOLDERS.values():
            text = text.replace("](docs/", "](")
            text = re.sub(r"\]\(([A-Z]+\.md)", lambda link: f"]({_FOLDERS[link[1]]}", text)
        text = text.replace("](decisions)", "](decisions/index.md)")
        text = re.sub(r"\]\(\.\./([A-Z]+\.md)", lambda link: f"]({_FOLDERS[link[1]]}", text)
        text = re.sub(r"\[([^]]+)\]\(\.\./((?![^)]*\.md)[^)]+)\)", _named, text)
        pieces[number] = re.sub(r"^((?![-|#>\s]|\d+\.).+)\n(?=- |\| |\d+\. )", r"\1\n\n", text, flags=re.MULTILINE)
    return "".join(pieces)


def _named(link: re.Match[str]) -> str:
    return f"`{link[2]}`" if link[1] in link[2] else f"{link[1]} (`{link[2]}`)"


def on_page_content(html: str, **_: Any) -> str:
    """Return a page without empty heads of tables, and with keys in cells that break between their words only."""
    return _CELL.sub(lambda cell: _CODE.sub(_breakable, cell[0]), _EMPTY_HEAD.sub("", html))


def _breakable(code: re.Match[str]) -> str:
    return "<code>" + _BETWEEN_WORDS.sub(r"\1<wbr>", code[1]) + "</code>"


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Raise `PluginError` if a page loads anything from the network when it is read."""
    if found := _FROM_THE_NETWORK.search(output):
        raise PluginError(f"{page.file.src_path} loads from the network: {found[0]}")
    return output
