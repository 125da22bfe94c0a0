"""Types of options whose values are checked before the command runs, so that a wrong form is a usage error."""

from collections.abc import Callable
from typing import Any, Final

import click

from odradek.config import BrokerConfig
from odradek.config.definition import definitions, parse_all
from odradek.config.secrets import resolved
from odradek.model import ConfigurationError, KafkaError, bootstrap_addresses, parse_host_port, validate_topic_name
from odradek.stores.opening import check_url


class Checked(click.ParamType[str]):
    """Texts that `parse` does not refuse; they stay as they are. Help texts show `name` in upper case."""

    def __init__(self, name: str, parse: Callable[[str], object]) -> None:
        self.name, self._parse = name, parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return `value`, or fail with the reason of `parse`."""
        try:
            self._parse(value)
        except (ConfigurationError, KafkaError) as error:
            self.fail(str(error), param, ctx)
        return value


def key_and_value(text: str) -> tuple[str, str]:
    """Split `KEY=VALUE` into its two texts. Raises `click.BadParameter`."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise click.BadParameter("write KEY=VALUE, such as num.partitions=3")  # without the text: it may be a secret
    return key.strip(), value


def _broker_key(text: str) -> None:
    key, value = key_and_value(text)
    if key in (known := definitions(BrokerConfig)):
        parse_all(known, resolved({key: value}))


ADDRESS: Final = Checked("host:port", parse_host_port)
ADDRESSES: Final = Checked("host:port[,…]", lambda text: bootstrap_addresses([text]))
TOPIC_NAME: Final = Checked("name", validate_topic_name)
TREE_URL: Final = Checked("url", check_url)
BROKER_KEY: Final = Checked("key=value", _broker_key)
