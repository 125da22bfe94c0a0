"""`odradek page`: it prints its address, serves it, and ends on a signal."""

import signal
import urllib.request
from typing import Any

from odradek.testing import Cluster


def test_the_page_prints_its_address_and_ends_on_a_signal(lonely_shell: Any, kafka: Cluster) -> None:
    process = lonely_shell.start("page", "--listen", "127.0.0.1:0", "-b", kafka.bootstrap_servers)
    ready = process.stdout.readline().decode().strip()
    with urllib.request.urlopen(ready.removeprefix("ready: "), timeout=60) as response:
        assert b"<h1>Cluster</h1>" in response.read()
    assert lonely_shell.end(process, signal.SIGINT) == (130, b"", b"")


def test_a_page_whose_port_is_taken_is_refused_in_a_line(lonely_shell: Any, kafka: Cluster) -> None:
    error = lonely_shell.run("page", "--listen", kafka.bootstrap_servers, code=1)
    assert error == f"odradek: cannot listen on {kafka.bootstrap_servers} for the page: Address already in use\n"
