"""A network of the soak's own: a namespace for each server, one bridge, and ways that are cut without a word.

The soak runs in user, network, mount and process namespaces of its own (`enter`), so that it needs no privileges,
nobody else sees its addresses and its disks, and no process outlives it. A cut way loses packets: the neighbour table
of the sender gets a hardware address that nobody has. As in a network that fails, connections over it are silent, and
not closed.
"""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

_INSIDE: Final = "ODRADEK_SOAK_NAMESPACES"
_ENTER: Final = ("unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--mount-proc")
_NOBODY: Final = "02:00:00:00:00:ff"
_COMMAND_S: Final = 30.0
CLIENTS: Final = "clients"
"""The name of the place where the soak itself runs, and with it its clients."""


def trouble() -> str:
    """Say why there can be no such namespaces here; the empty text if there can."""
    try:
        done = subprocess.run([*_ENTER, "ip", "netns", "list"], capture_output=True, text=True, check=False)
    except OSError as error:
        return f"{error.filename} cannot be run: {error.strerror}"
    return done.stderr.strip() if done.returncode else ""


def enter() -> None:
    """Return inside the namespaces: outside of them, this process begins anew in them."""
    if _INSIDE not in os.environ:
        os.environ[_INSIDE] = "1"
        os.execvp(_ENTER[0], [*_ENTER, "--kill-child", sys.executable, *sys.argv])
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))  # the first process there ignores it
    _run("mount", "-t", "tmpfs", "none", "/run")
    _run("ip", "link", "set", "lo", "up")


class Network:
    """A bridge with `names` on it, each in a namespace of its own, and the soak itself, called `clients`."""

    def __init__(self, names: Iterable[str]) -> None:
        self.addresses = {name: f"10.77.0.{number}" for number, name in enumerate(names, 1)} | {CLIENTS: "10.77.0.254"}
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()
        _run("ip", "link", "add", "bridge", "type", "bridge")
        _run("ip", "address", "add", f"{self.addresses[CLIENTS]}/24", "dev", "bridge")
        _run("ip", "link", "set", "bridge", "up")
        for name, address in self.addresses.items():
            if name != CLIENTS:
                self._add(name, address)

    def launcher(self, name: str) -> list[str]:
        """The prefix of a command that has to run there."""
        return ["nsenter", f"--net={_namespace(name)}"]

    def cut(self, source: str, target: str) -> None:
        """Lose what `source` sends to `target`, until it was healed as often as it was cut."""
        with self._lock:
            self._cuts[source, target] += 1
            if self._cuts[source, target] == 1:
                self._neighbour(source, "replace", target, "lladdr", _NOBODY, "nud", "permanent")

    def heal(self, source: str, target: str) -> None:
        """Take one cut back."""
        with self._lock:
            self._cuts[source, target] -= 1
            if self._cuts[source, target] == 0:
                self._neighbour(source, "del", target)

    def _add(self, name: str, address: str) -> None:
        _run("ip", "netns", "add", name)
        _run("ip", "link", "add", name, "type", "veth", "peer", "name", "net", "netns", name)
        _run("ip", "link", "set", name, "master", "bridge", "up")
        _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", "net")
        _run("ip", "-n", name, "link", "set", "net", "up")
        _run("ip", "-n", name, "link", "set", "lo", "up")

    def _neighbour(self, source: str, verb: str, target: str, *rest: str) -> None:
        place = ("ip",) if source == CLIENTS else ("ip", "-n", source)
        device = "bridge" if source == CLIENTS else "net"
        _run(*place, "neighbour", verb, self.addresses[target], "dev", device, *rest)


def _namespace(name: str) -> Path:
    return Path("/run/netns") / name


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_COMMAND_S)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")
