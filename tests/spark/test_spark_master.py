"""A wrong or dead master, and a wrong memory, are found before Java starts."""

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.cli import main
from odradek.model import ConfigurationError, UnavailableError
from odradek.pipelines.config.examples import EXAMPLES
from odradek.spark.master import check_master_answers, check_memory, local_threads


@pytest.mark.parametrize(
    ("master", "threads"),
    [
        ("local", 1),
        ("local[4]", 4),
        ("local[*]", 6),
        ("local[3, 2]", 3),
        ("local-cluster[1,1,1024]", None),
        ("spark://a:7077,b:7077", None),
        ("spark://[::1]:7077", None),
        ("yarn", None),
        ("k8s://https://a:6443", None),
    ],
)
def test_a_local_master_has_its_own_number_of_threads(master: str, threads: int | None) -> None:
    assert local_threads(master, 6) == threads


@pytest.mark.parametrize("master", ["locale", "local[0]", "local[]", "spark://a", "spark:/a:7077", "a:7077", ""])
def test_a_wrong_master_is_refused(master: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is no Spark master: local\[N\], spark://HOST:PORT"):
        local_threads(master, 6)


@pytest.mark.parametrize("memory", ["", "2", "2gb", "2x", "1.5g", "-2g", "511m", "0t"])
def test_a_wrong_memory_is_refused(memory: str) -> None:
    with pytest.raises(ConfigurationError, match="is no memory for Spark's driver: give a size such as 2g"):
        check_memory(memory)


@pytest.mark.parametrize("memory", ["512m", "1g", "2G", "1t"])
def test_a_size_of_the_jvm_is_accepted(memory: str) -> None:
    check_memory(memory)


def test_a_master_answers_if_one_of_its_hosts_does() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        check_master_answers(f"spark://127.0.0.1:1,127.0.0.1:{port}")
        check_master_answers("yarn")
    with pytest.raises(UnavailableError, match=f"no Spark master answers at spark://127.0.0.1:{port}"):
        check_master_answers(f"spark://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("options", "sentence", "code"),
    [
        (("--master", "locale[2]"), "'locale[2]' is no Spark master: local[N], ", 2),
        (("--conf", "spark.master=locale[2]"), "'locale[2]' is no Spark master: local[N], ", 2),
        (("--memory", "1gb"), "'1gb' is no memory for Spark's driver: ", 2),
        (("--master", "spark://127.0.0.1:1"), "no Spark master answers at spark://127.0.0.1:1\n", 1),
    ],
)
def test_a_command_reports_it_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, str], sentence: str, code: int
) -> None:
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    file = tmp_path / "job.toml"
    file.write_text(EXAMPLES["mirror"])
    done = CliRunner().invoke(main, ["pipeline", "check", *options, str(file)])
    assert (done.exit_code, done.output.startswith(f"odradek: {sentence}"), done.output.count("\n")) == (code, True, 1)


def test_memory_is_not_for_a_remote_spark(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text(EXAMPLES["mirror"])
    done = CliRunner().invoke(main, ["pipeline", "check", "--remote", "sc://a:1", "--memory", "2g", str(file)])
    assert (done.exit_code, "--remote is a running Spark" in done.output) == (2, True)
