"""Profiles and environment variables: where commands find the cluster's address and the clients' settings.

```
~/.config/odradek/config.toml     [default]                             chosen without --profile
                                  bootstrap-server = "localhost:9092"
                                  [production]
                                  bootstrap-server = "kafka-1:9092,kafka-2:9092"
                                  client.id = "operations"              any key of --command-config
ODRADEK_BOOTSTRAP_SERVER          instead of the address of [default] or of ODRADEK_PROFILE
ODRADEK_PROFILE, ODRADEK_TIMEOUT  as --profile and --timeout
```
"""

import os
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from odradek.model import ConfigurationError

_DEFAULT: Final = "default"
_ADDRESS: Final = "bootstrap.servers"


def properties_of_profile(name: str | None) -> tuple[str, dict[str, str]]:
    """Return a profile's place, for errors, and its properties. A `name` of None chooses by the environment.

    Raises `ConfigurationError` for an unreadable file, and for a chosen profile that the file lacks.
    """
    chosen = name or os.environ.get("ODRADEK_PROFILE")
    path = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "odradek" / "config.toml"
    profiles = _read(path) if chosen or path.exists() else {}
    if chosen and chosen not in profiles:
        raise ConfigurationError(f"{path} has no profile {chosen!r}, only {', '.join(profiles) or 'none'}")
    found = dict(_properties(profiles.get(chosen or _DEFAULT, {})))
    if name is None and (address := os.environ.get("ODRADEK_BOOTSTRAP_SERVER")):
        found[_ADDRESS] = address
    return f"{path}, profile {chosen or _DEFAULT}", found


def timeout_of_environment() -> float | None:
    """Return `ODRADEK_TIMEOUT` in seconds. Raises `ConfigurationError` if it is no time-out."""
    text = os.environ.get("ODRADEK_TIMEOUT")
    return seconds(text, "ODRADEK_TIMEOUT") if text else None


def seconds(text: str, option: str = "--timeout") -> float:
    """Parse a time-out. Raises `ConfigurationError`."""
    with suppress(ValueError):
        if 0 < (found := float(text)) < 1e6:
            return found
    raise ConfigurationError(f"{option} is a number of seconds, such as 10, not {text!r}")


def _read(path: Path) -> dict[str, Any]:
    try:
        profiles = tomllib.loads(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ConfigurationError(f"can't read the profiles in {path}: {error.strerror}") from None
    except ValueError as error:  # not TOML, or not UTF-8
        raise ConfigurationError(f"{path} is not valid TOML: {error}") from None
    for name, profile in profiles.items():
        if not isinstance(profile, dict):
            raise ConfigurationError(f"{path}: {name} is in no profile; write it below a line such as [{_DEFAULT}]")
    return profiles


def _properties(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield keys and values as a properties file has them; TOML reads `client.id = …` as a table in a table."""
    for name, value in table.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict):
            yield from _properties(value, f"{key}.")
        elif isinstance(value, list):
            yield key, ",".join(map(str, value))
        else:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            yield _ADDRESS if key == "bootstrap-server" else key, text
