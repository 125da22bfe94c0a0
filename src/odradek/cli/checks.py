"""Types of options whose values are checked before the command runs, so that the error names the option."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import click

from odradek.model import OdradekError, bootstrap_addresses, parse_host_port, validate_topic_name
from odradek.stores.opening import check_shared
from odradek.stores.semantics import check_path


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn an error of a parser, or of a rule that brokers have, too, into a usage error."""
    try:
        yield
    except OdradekError as error:
        raise click.BadParameter(str(error)) from None


class Checked(click.ParamType[str]):
    """Texts that `parse` does not refuse; they stay as they are. Help texts show `name` in upper case."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return `value`, or fail with the reason of `parse`."""
        del param, ctx
        with usage_errors():
            self._parse(value)
        return value


def key_and_value(text: str) -> tuple[str, str]:
    """Split `KEY=VALUE` into its two texts. Raises `click.BadParameter`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise click.BadParameter("write KEY=VALUE, such as num.partitions=3")  # without the text: it may be a secret
    return key.strip(), value


ID: Final = click.IntRange(0, 2**31 - 1)
"""A broker's id, or the number of a partition."""
COUNT: Final = click.IntRange(1, 2**31 - 1)
OFFSET: Final = click.IntRange(0, 2**63 - 1)
BYTES: Final = click.IntRange(1, 2**63 - 1)
ADDRESS: Final = Checked("host:port", parse_host_port)
ADDRESSES: Final = Checked("host:port[,…]", lambda text: bootstrap_addresses([text]))
TOPIC_NAME: Final = Checked("name", validate_topic_name)
TOPIC_NAMES: Final = Checked("name", lambda text: validate_topic_name(text.replace("*", "x").replace("?", "x")))
"""A topic's name, which may have wildcards."""
TREE_URL: Final = Checked("url", check_shared)
TREE_PATH: Final = Checked("path", check_path)
