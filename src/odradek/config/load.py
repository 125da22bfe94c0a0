"""Loading of a properties file and overrides as a `BrokerConfig`."""

import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from odradek.config.broker import BrokerConfig
from odradek.config.properties import decode_properties
from odradek.config.replaced_keys import with_listeners
from odradek.config.secrets import resolved
from odradek.config.unimplemented_keys import why_ignored
from odradek.model import ConfigurationError

_log = logging.getLogger("odradek.config")


def load(
    properties_file: str | None, overrides: Mapping[str, str], *, defaults: Mapping[str, str] = MappingProxyType({})
) -> BrokerConfig:
    """Return the configuration in a Java properties file, overridden by `overrides` (Kafka's names and texts).

    `defaults` are for keys that neither the file nor `overrides` has. Values may refer to secrets (`secrets`). Raises
    `ConfigurationError` for invalid content or an unreadable file. Logs a warning for Kafka's keys that are ignored.
    """
    properties = _read(properties_file) if properties_file is not None else {}
    properties = {**defaults, **properties, **overrides}
    config = BrokerConfig.parse(with_listeners(resolved(properties)))
    for name, text in sorted(config.unimplemented.items()):
        if (reason := why_ignored(name, text)) is not None:
            _log.warning("%s is ignored: %s", name, reason)
    return config


def _read(path: str) -> dict[str, str]:
    try:
        return decode_properties(path, Path(path).read_bytes())
    except OSError as error:
        raise ConfigurationError(f"can't read the configuration {path}: {error.strerror}") from None
