"""Where a command finds its cluster: options before or after its name, environment, profiles; and how long it waits."""

import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from conformance.peers.client_files import BOOTSTRAP
from odradek.cli import CommandGroup, main
from odradek.cli.common import client_settings, cluster_options

Settings = Callable[..., dict[str, Any]]


@pytest.fixture(autouse=True)
def config_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without profiles, for this test alone."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def profiles(config_home: Path) -> None:
    folder = config_home / "odradek"
    folder.mkdir()
    (folder / "config.toml").write_text(
        '[default]\nbootstrap-server = "of-default:1"\nclient.id = "d"\n'
        '[far]\n"bootstrap.servers" = ["far-1:1", "far-2:1"]\nrequest.timeout.ms = 5\n'
        '[wrong]\nclient.idd = "x"\n'
    )


@pytest.fixture
def settings() -> Settings:
    """Returns the settings that a command in a group has for these arguments."""

    def of(*arguments: str, **environment: str) -> dict[str, Any]:
        found: dict[str, Any] = {}
        outer, inner = CommandGroup("odradek"), CommandGroup("topics")

        @inner.command("list")
        @cluster_options
        def list_() -> None:
            found.update(client_settings())

        outer.add_command(inner)
        result = CliRunner(env=environment).invoke(outer, arguments, standalone_mode=False)
        if result.exception:
            raise result.exception
        of.said = result.stderr  # type: ignore[attr-defined]
        return found

    return of


@pytest.mark.parametrize(
    "line",
    [
        "topics list -b here:1 --timeout 3",
        "-b here:1 --timeout=3 topics list",
        "--timeout 3 topics --bootstrap-server=here:1 list",
        "-b there:1 topics -bhere:1 list --timeout 3",
    ],
)
def test_options_for_the_cluster_stand_before_or_after_the_command(settings: Settings, line: str) -> None:
    found = settings(*line.split())
    assert (found["bootstrap_servers"], found["default_api_timeout_ms"]) == ("here:1", 3000)


def test_a_flag_is_stronger_than_the_environment_and_that_than_the_default_profile(
    settings: Settings, profiles: None, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=of-file:1\n")
    environment = {"ODRADEK_BOOTSTRAP_SERVER": "of-environment:1"}
    command = ("topics", "list")
    assert settings(*command)["bootstrap_servers"] == "of-default:1"
    assert settings(*command)["client_id"] == "d"
    assert settings(*command, ODRADEK_PROFILE="far")["bootstrap_servers"] == "far-1:1,far-2:1"
    assert settings(*command, ODRADEK_PROFILE="far", **environment)["bootstrap_servers"] == "of-environment:1"
    assert settings(*command, "--profile", "far", **environment)["bootstrap_servers"] == "far-1:1,far-2:1"
    assert settings(*command, "--command-config", str(file), **environment)["bootstrap_servers"] == "of-file:1"
    found = settings(*command, "-b", "here:1", "--profile", "far", "--command-config", str(file), **environment)
    assert (found["bootstrap_servers"], found["request_timeout_ms"]) == ("here:1", "5")


def test_a_wrong_profile_names_the_file_and_what_is_wrong(settings: Settings, profiles: None) -> None:
    with pytest.raises(Exception, match=r"config.toml has no profile 'near', only default, far, wrong"):
        settings("topics", "list", "--profile", "near")
    with pytest.raises(Exception, match=r"config.toml, profile wrong: .*client.idd.* did you mean client.id"):
        settings("topics", "list", "--profile", "wrong")


@pytest.mark.parametrize(
    ("text", "says"), [("x = 1", "x is in no profile"), ("[default", "not valid TOML"), (None, "No such file")]
)
def test_a_file_that_is_no_file_of_profiles_is_refused(
    settings: Settings, config_home: Path, text: str | None, says: str
) -> None:
    (config_home / "odradek").mkdir()
    if text is not None:
        (config_home / "odradek" / "config.toml").write_text(text)
    with pytest.raises(Exception, match=says):
        settings("topics", "list", "--profile", "default")


def test_commands_wait_ten_seconds_by_default(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("default.api.timeout.ms=7\n")
    limits = ("default_api_timeout_ms", "request_timeout_ms", "socket_connection_setup_timeout_ms")
    assert [settings("topics", "list")[key] for key in limits] == [10_000] * 3
    assert [settings("topics", "list", "-b", "a:1,b:1")[key] for key in limits] == [10_000, 10_000, 5_000]
    assert [settings("topics", "list", ODRADEK_TIMEOUT="60")[key] for key in limits] == [60_000, 60_000, 10_000]
    command = ("topics", "list", "--command-config", str(file))
    assert settings(*command) == {"default_api_timeout_ms": "7"}
    assert settings(*command, "--timeout", "2")["default_api_timeout_ms"] == 2000
    with pytest.raises(Exception, match="ODRADEK_TIMEOUT is a number of seconds, such as 10, not 'soon'"):
        settings("topics", "list", ODRADEK_TIMEOUT="soon")


@pytest.mark.parametrize(
    ("content", "expected", "remarks"),
    [
        (b"\xef\xbb\xbfclient.id=\xc3\xa9\n", {"client_id": "é"}, []),
        (b"client.id=\xe9\n", {"client_id": "é"}, []),
        (b"bootstrap.servers=PLAINTEXT://a:1,SSL://b:2,\n", {"bootstrap_servers": "a:1,b:2"}, []),
        (
            b"security.protocol=ssl\nschema.registry.url=http://s\n",
            {"security_protocol": "SSL"},
            ["schema.registry.url"],
        ),
        (
            b"sasl.mechanism=PLAIN\nsasl.jaas.config=x\nssl.truststore.location=/ca.pem\n",
            {},
            ["sasl.mechanism", "sasl.jaas.config", "ssl.truststore.location"],
        ),
        (
            b"security.protocol=plaintext\nsasl.mechanism=PLAIN\n",
            {"security_protocol": "PLAINTEXT"},
            ["sasl.mechanism"],
        ),
        (b"ssl.ca.location=/ca.pem\n", None, ["client.properties: ssl.ca.location is not supported here"]),
        (b"a=1\0\n", None, ["client.properties is not UTF-8"]),
        (b"bootstrap.servers=h\n", None, ["HOST:PORT"]),
    ],
)
def test_a_file_for_kafkas_tools_is_taken_as_they_take_it(
    settings: Settings, tmp_path: Path, content: bytes, expected: Any, remarks: Any
) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(content)
    line = ("topics", "list", "--command-config", str(file))
    if expected is None:
        with pytest.raises(Exception, match=remarks[0]):
            settings(*line)
        return
    found = settings(*line)
    limits = {"default_api_timeout_ms", "request_timeout_ms", "socket_connection_setup_timeout_ms"}
    assert {key: found[key] for key in found.keys() - limits} == expected
    said = settings.said  # type: ignore[attr-defined]
    assert len(said.splitlines()) == len(remarks)
    for line, key in zip(said.splitlines(), remarks, strict=True):
        assert line.startswith(f"odradek: {file}: ")
        assert key in line


@pytest.mark.parametrize("text", BOOTSTRAP)
def test_addresses_of_an_option_are_those_of_kafkas_clients(settings: Settings, text: str) -> None:
    addresses = BOOTSTRAP[text]
    if addresses is None:
        with pytest.raises(click.BadParameter, match=r"HOST:PORT|needs brackets"):
            settings("topics", "list", "-b", text)
        return
    assert settings("topics", "list", "-b", text)["bootstrap_servers"].split(",") == addresses


def run(line: str, *, fails: int) -> Result:
    result = CliRunner().invoke(main, line.split())
    assert result.exit_code == fails, result.output
    return result


def test_options_that_a_command_lacks_and_names_that_do_not_exist_are_refused_with_similar_ones() -> None:
    assert "No such option '-b'" in run("-b here:1 serve", fails=2).output
    assert "No such command 'topcis'. Did you mean 'topics'?" in run("topcis list", fails=2).output
    assert "No such command 'descrbe'. Did you mean 'describe'?" in run("group descrbe g", fails=2).output
    assert "Did you mean '--json'?" in run("topics list --jsn", fails=2).output
    assert "--timeout" in run("-b here:1 --help", fails=0).output


@pytest.mark.parametrize("name", ["topic", "group", "config", "partition", "broker", "pipelines"])
def test_a_command_may_be_named_in_singular_or_plural(name: str) -> None:
    assert "Commands:" in run(f"{name} --help", fails=0).output


@pytest.mark.parametrize("line", ["topics list", "consume t", "produce t", "groups watch g"])
def test_a_server_that_never_answers_is_named_with_the_reason(line: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        said = run(f"{line} -b {address} --timeout 0.1", fails=1).output
    assert f"broker {address}: it did not answer ApiVersions within 100 ms" in said
    assert "--bootstrap-server" in said


def test_a_group_callback_keeps_its_own_options() -> None:
    group = CommandGroup("g", params=[click.Option(["--own"])], callback=lambda own: click.echo(own))
    group.add_command(click.Command("c"))
    assert CliRunner().invoke(group, ["--own", "x", "c"]).output == "x\n"
