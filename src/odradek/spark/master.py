"""Spark's master and the driver's memory, checked before Java starts.

Spark retries a dead master for a minute, and reports a wrong URL or size by a traceback of the JVM.
"""

import re
import socket
from contextlib import suppress
from typing import Final

from odradek.model import ConfigurationError, UnavailableError, parse_server

SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
SPARKS_SHUFFLE_PARTITIONS: Final = "200"
"""Spark's default: each batch with a shuffle starts as many tasks, on any number of cores."""

FIRST_BATCH: Final = {"spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart": "false"}
"""Spark's default refuses a first batch beside the temporary file that a killed one left."""

_LOCAL: Final = re.compile(r"local(?:\[([1-9]\d*|\*)(?:\s*,\s*\d+)?\])?")
_CLUSTER: Final = re.compile(r"yarn|k8s://.+|local-cluster\[.+\]")
_ADDRESS: Final = r"(?:\[[^\]\s]+\]|[^\s:,/]+):\d{1,5}"
_STANDALONE: Final = re.compile(rf"spark://({_ADDRESS}(?:,{_ADDRESS})*)")
_MEMORY: Final = re.compile(r"(\d+)([mgt])", re.IGNORECASE)
_MEGABYTES: Final = {"m": 1, "g": 1 << 10, "t": 1 << 20}
_LEAST_MEGABYTES: Final = 512
"""Spark refuses less than 450 MiB, of which the JVM keeps a thirtieth for itself."""
_PORT_SECONDS: Final = 5.0


def local_threads(master: str, cores: int) -> int | None:
    """Return the number of threads of a local master, None for a cluster. Raise `ConfigurationError`."""
    if local := _LOCAL.fullmatch(master):
        return {None: 1, "*": cores}.get(local[1]) or int(local[1])
    if _CLUSTER.fullmatch(master) or _STANDALONE.fullmatch(master):
        return None
    raise ConfigurationError(
        f"{master!r} is no Spark master: local[N], spark://HOST:PORT[,HOST:PORT…], k8s://URL and yarn are"
    )


def check_master_answers(master: str) -> None:
    """Raise `UnavailableError` if no host of `spark://…` accepts connections. Other masters are not checked."""
    found = _STANDALONE.fullmatch(master)
    if found is None:
        return
    addresses = found[1].split(",")
    for address in addresses:
        with (
            suppress(OSError),
            socket.create_connection(parse_server(address), _PORT_SECONDS / len(addresses)),
        ):
            return
    raise UnavailableError(f"no Spark master answers at {master}")


def check_memory(memory: str) -> None:
    """Raise `ConfigurationError` unless `memory` is a heap size that both the JVM and Spark accept."""
    size = _MEMORY.fullmatch(memory)
    if size is None or int(size[1]) * _MEGABYTES[size[2].lower()] < _LEAST_MEGABYTES:
        raise ConfigurationError(
            f"{memory!r} is no memory for Spark's driver: give a size such as 2g, at least {_LEAST_MEGABYTES}m"
        )
