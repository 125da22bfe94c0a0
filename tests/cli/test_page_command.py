"""`odradek page`: it prints its address, serves it, and ends on a signal."""

import signal
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from odradek.supervisor.security_files import security_files
from odradek.testing import Cluster

pytestmark = pytest.mark.long
_STOPS = b"odradek: SIGINT: shutting down; a second signal ends the process at once\n"
"""As of `serve` and `up`."""


def test_the_page_prints_its_address_and_ends_on_a_signal(lonely_shell: Any, kafka: Cluster) -> None:
    process = lonely_shell.start("page", "--listen", "127.0.0.1:0", "-b", kafka.bootstrap_servers)
    ready = process.stdout.readline().decode().strip()
    with urllib.request.urlopen(ready.removeprefix("ready: "), timeout=60) as response:
        assert b"<h1>Cluster</h1>" in response.read()
    assert lonely_shell.end(process, signal.SIGINT) == (0, b"", _STOPS)


def test_one_page_shows_several_clusters(lonely_shell: Any, kafka: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"bootstrap.servers={kafka.bootstrap_servers}\n")
    process = lonely_shell.start("page", "--listen", "127.0.0.1:0", "--cluster", f"a={file}", "--cluster", f"b={file}")
    ready = process.stdout.readline().decode().strip()
    with urllib.request.urlopen(ready.removeprefix("ready: "), timeout=60) as response:
        text = response.read().decode()
    assert response.url.endswith("/clusters/a/")
    assert '<a href="/clusters/b/">b</a>' in text
    assert lonely_shell.end(process, signal.SIGINT) == (0, b"", _STOPS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--cluster", "a", "-b", "x:1"], "leave out -b"),
        (["--cluster", "a/b"], "is not NAME or NAME=FILE"),
        (["--cluster", "a=/dev/null", "--cluster", "a=/dev/null"], "two clusters have one name"),
    ],
)
def test_clusters_without_names_of_their_own_are_refused(lonely_shell: Any, arguments: list[str], words: str) -> None:
    assert words in lonely_shell.run("page", *arguments, code=2)


def test_a_page_whose_port_is_taken_is_refused_in_a_line(lonely_shell: Any, kafka: Cluster) -> None:
    error = lonely_shell.run("page", "--listen", kafka.bootstrap_servers, code=1)
    reason = "another process has that port; stop it, or choose another port"
    assert error == f"odradek: can't listen on {kafka.bootstrap_servers} for the page: {reason}\n"


def test_a_page_for_other_machines_needs_tls_and_a_login(lonely_shell: Any) -> None:
    error = lonely_shell.run("page", "--listen", "0.0.0.0:0", code=2)
    assert error.startswith("odradek: 0.0.0.0 can be reached from other machines")
    assert "--tls-certificate" in error
    assert lonely_shell.run("page", "--tls-certificate", "/no/such.pem", code=2) == (
        "odradek: can't read /no/such.pem: No such file or directory\n"
    )


def test_a_broker_serves_its_page_beside_it(lonely_shell: Any, tmp_path: Path) -> None:
    process = lonely_shell.start(
        "serve", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path), "--page", "127.0.0.1:0"
    )
    assert process.stdout.readline().startswith(b"ready: 127.0.0.1:")
    address = ""
    while "page at " not in address:
        address = process.stderr.readline().decode()
    page = address.partition("page at ")[2].strip()
    with urllib.request.urlopen(page, timeout=60) as response:
        assert b'<span class="tag">controller</span>' in response.read()
    with urllib.request.urlopen(f"{page}metadata?path=/brokers/ids", timeout=60) as response:
        assert b'href="/metadata?path=/brokers/ids/0"' in response.read()
    assert lonely_shell.end(process, signal.SIGTERM)[0] == 0


def test_users_log_in_at_the_page_of_a_broker_with_sasl_and_tls(lonely_shell: Any, tmp_path: Path) -> None:
    files = security_files(tmp_path / "security")
    process = lonely_shell.start(
        "serve", "--config", str(files.broker), "-o", "listeners=SASL_SSL://127.0.0.1:0", "-o",
        f"log.dirs={tmp_path / 'data'}", "--page", "127.0.0.1:0",
    )  # fmt: skip
    address = ""
    while "page at " not in address:
        address = process.stderr.readline().decode()
    page = address.partition("page at ")[2].strip()
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(page, timeout=60) as response:
        form = response.read().decode()
    assert 'tag">controller' not in form
    token = form.partition('name="csrf" value="')[2].partition('"')[0]
    password = files.client.read_text().partition('password="')[2].partition('"')[0]
    body = urllib.parse.urlencode({"csrf": token, "user": "admin", "password": password}).encode()
    with browser.open(f"{page}login", body, timeout=60) as response:
        assert b'<span class="tag">controller</span>' in response.read()
    assert lonely_shell.end(process, signal.SIGTERM)[0] == 0
