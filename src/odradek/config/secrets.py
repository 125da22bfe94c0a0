"""Secrets in settings: references to them, as of Kafka's config providers, and texts without them.

| in a file of settings | is replaced by |
|---|---|
| `${env:NAME}` | the environment variable |
| `${dir:DIRECTORY:FILE}` | the content of a file, without the line end, such as a secret of Kubernetes |
| `${file:PATH:KEY}` | the value of a key in a properties file |
"""

import os
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from odradek.config.properties import decode_properties
from odradek.model import ConfigurationError

_REFERENCE: Final = re.compile(r"\$\{(env|dir|file):([^}]*)\}")


class ClientOptions(dict[str, str]):
    """Keys and values of settings. The text of the object has no values, which may be secrets."""

    def __repr__(self) -> str:
        return f"<{', '.join(self)}>"


def resolved(settings: Mapping[str, str]) -> ClientOptions:
    """Return settings with the values that references name. Raises `ConfigurationError` if there is none."""
    return ClientOptions((key, _REFERENCE.sub(partial(_value, key), text)) for key, text in settings.items())


def _value(key: str, found: re.Match[str]) -> str:
    provider, what = found.groups()
    place, _, name = what.rpartition(":")
    try:
        if provider == "env":
            return os.environ[what]
        if provider == "dir":
            return Path(place, name).read_text(encoding="utf-8-sig").rstrip("\r\n")
        return decode_properties(place, Path(place).read_bytes())[name]
    except KeyError:
        missing = "environment variable of this name" if provider == "env" else f"{name} in this file"
        raise ConfigurationError(f"{key} is {found[0]}, and there is no {missing}") from None
    except OSError as error:
        raise ConfigurationError(f"{key} is {found[0]}, which can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"{key} is {found[0]}, which is not UTF-8 text") from None
