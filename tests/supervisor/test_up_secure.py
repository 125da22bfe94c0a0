"""`odradek up --secure DIR`: certificates and an administrator, by one command."""

import shlex
import stat
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, Request, build_opener, urlopen

import pytest
from click.testing import CliRunner, Result

from odradek.cli import main
from odradek.model import ConfigurationError
from odradek.supervisor.security_files import security_files
from tests.supervisor.test_up import up

pytestmark = pytest.mark.long


def odradek(command: str) -> Result:
    return CliRunner().invoke(main, shlex.split(command)[1:])


def test_the_printed_command_works_also_after_a_restart_and_a_wrong_password_is_refused(tmp_path: Path) -> None:
    security, wrong = tmp_path / "security", tmp_path / "wrong.properties"
    for expected in ("", "orders"):
        with up(tmp_path / "data", "--brokers", "1", "--secure", str(security)) as running:
            command = running.process.stdout.readline().removeprefix("use: ")
            assert f"-b {running.bootstrap_servers} " in command
            listed = odradek(command)
            assert (listed.exit_code, expected in listed.output) == (0, True), listed.output
            if not expected:
                created = odradek(command.replace("topics list", "topics create orders"))
                assert created.exit_code == 0, created.output
                continue
            login = (security / "client.properties").read_text()
            wrong.write_text(login.replace(' password="', ' password="x'))
            refused = odradek(f"odradek topics list -b {running.bootstrap_servers} --command-config {wrong}")
            assert refused.exit_code == 1
            assert "PLAIN: Authentication failed: invalid credentials" in refused.output


def test_files_are_made_once_and_only_their_owner_may_read_them(tmp_path: Path) -> None:
    directory = tmp_path / "security"
    files = security_files(directory)
    made = {path: path.read_bytes() for path in directory.iterdir()}
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o600}
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert security_files(directory) == files
    (directory / "broker.pem").unlink()
    security_files(directory)
    changed = {path.name for path, content in made.items() if path.read_bytes() != content}
    assert changed == {"broker.pem"}
    files.client.unlink()
    security_files(directory)
    password = files.client.read_text().partition(' password="')[2].partition('"')[0]
    assert f'user_admin="{password}"' in files.broker.read_text(), "a new password is one of both files"


def test_files_that_are_no_authority_are_refused(tmp_path: Path) -> None:
    for name in ("ca.pem", "ca.key"):
        (tmp_path / name).write_text("nonsense")
    with pytest.raises(ConfigurationError, match=r"ca\.key are not an authority's certificate and key: .* remove both"):
        security_files(tmp_path)


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "trustme", None)
    with pytest.raises(ConfigurationError, match=r"need trustme, .*: pip install 'odradek\[security\]'"):
        security_files(tmp_path)


def test_the_page_requires_a_login_of_every_local_user_and_shows_no_tree(tmp_path: Path) -> None:
    security = tmp_path / "security"
    arguments = ("--brokers", "1", "--secure", str(security), "--page", "127.0.0.1:0")
    with up(tmp_path / "data", *arguments) as running:
        running.process.stdout.readline()
        address = running.process.stdout.readline().strip().removeprefix("page: ").rstrip("/")
        with urlopen(f"{address}/topics") as answer:
            assert answer.url == f"{address}/login?next=%2Ftopics"
            form = answer.read().decode()
        token = form.partition('name="csrf" value="')[2].partition('"')[0]
        password = (security / "client.properties").read_text().partition(' password="')[2].partition('"')[0]
        browser = build_opener(HTTPCookieProcessor())

        def login(password: str) -> Request:
            fields = urlencode({"csrf": token, "user": "admin", "password": password}).encode()
            return Request(f"{address}/login", fields, {"origin": address})

        with pytest.raises(HTTPError, match="401"):
            browser.open(login("wrong"))
        assert browser.open(login(password)).status == 200
        assert "odradek page --metadata" in browser.open(f"{address}/metadata").read().decode()
