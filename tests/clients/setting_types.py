"""Writes the types of the clients' settings, `odradek/clients/setting_types.py`, from the definitions of their keys.

    python tests/clients/setting_types.py        after a change of a client's keys

A test compares the file with `text`. A key that a client's constructor has as a parameter of its own is left out.
"""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import Final

from odradek import clients
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.producer.settings import ProducerSettings
from odradek.clients.settings import ClientSettings, FetchSettings
from odradek.clients.zookeeper_consumer.settings import ZookeeperConsumerSettings
from odradek.config.definition import ConfigType, Definition, definitions

PATH: Final = Path(__file__).parents[2] / "src/odradek/clients/setting_types.py"
CLASSES: Final = {
    ClientSettings: clients.Admin,
    FetchSettings: clients.SimpleConsumer,
    ProducerSettings: clients.Producer,
    ConsumerSettings: clients.Consumer,
    ZookeeperConsumerSettings: clients.ZookeeperConsumer,
}
"""Settings → the client whose constructor takes them; base classes first."""
_TYPES: Final = {
    ConfigType.BOOLEAN: "bool",
    ConfigType.DOUBLE: "float",
    ConfigType.LIST: "str | list[str] | tuple[str, ...]",
    ConfigType.STRING: "str",
    ConfigType.CLASS: "str | Callable[[], object]",
    ConfigType.PASSWORD: "str",
}
_HEAD: Final = '''"""The types of the clients' settings: written by tests/clients/setting_types.py, never by hand.

`Producer(**settings)` of a dict that is declared as `ProducerConfig` is checked, too.
"""

from collections.abc import Callable
from typing import Literal, TypedDict
'''


def config_name(settings: type) -> str:
    """Return the name of the `TypedDict` of a settings class."""
    return settings.__name__.removesuffix("Settings") + "Config"


def annotation(definition: Definition) -> str:
    """Return the type of a key's values; texts that stand for other types, as in properties files, are left out."""
    written = _TYPES.get(definition.type, "int")
    if definition.choices and definition.type is ConfigType.STRING:
        numbers = tuple(int(each) for each in definition.choices if each.lstrip("-").isdigit())
        written = f"Literal{[*definition.choices, *numbers]}"
    return f"{written} | None" if definition.nullable else written


def text() -> str:
    """Return the file's text."""
    parts = [_HEAD]
    for settings, client in CLASSES.items():
        base = settings.__bases__[0]
        inherited = definitions(base) if base in CLASSES else {}
        left_out = {"bootstrap_servers", *inspect.signature(client).parameters}
        own = (each for name, each in definitions(settings).items() if name not in inherited)
        bases = config_name(base) if base in CLASSES else "TypedDict"
        parts += [
            f"class {config_name(settings)}({bases}, total=False):",
            f'    """Settings of `{client.__name__}`."""\n',
            *(f"    {each.attribute}: {annotation(each)}" for each in own if each.attribute not in left_out),
        ]
    ruff = [str(Path(sys.executable).with_name("ruff")), "format", "--quiet", "--stdin-filename", str(PATH), "-"]
    return subprocess.run(ruff, input="\n".join(parts), capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    PATH.write_text(text())
