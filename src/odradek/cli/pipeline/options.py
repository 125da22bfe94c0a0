"""Options of the pipeline commands: the TOML files, and the Spark that runs them."""

import functools
import logging
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from odradek.cli.checks import COUNT, key_and_value
from odradek.cli.process import terminable
from odradek.model import OdradekError, packages_of
from odradek.pipelines.config.parsing import PipelineFile, load_file, toml_files

F = TypeVar("F", bound=Callable[..., Any])

files_argument: Final = click.argument(
    "files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path)
)


def spark_options(function: F) -> F:
    """Add the options of `SparkChoice`; the command gets it as `spark_choice`."""

    @functools.wraps(function)
    def with_choice(
        *args: Any,
        master: str | None,
        remote: str | None,
        threads: int | None,
        memory: str | None,
        conf: Sequence[str],
        debug: bool,
        **others: Any,
    ) -> Any:
        if remote is not None and (master is not None or threads is not None or memory is not None):
            raise click.UsageError(
                "--remote is a running Spark: --master, --threads and --memory are for one of this command"
            )
        if threads is not None and master is not None:
            raise click.UsageError("--threads is --master 'local[N]'; give one of them")
        choice = SparkChoice(master, remote, threads, memory or "1g", dict(map(key_and_value, conf)), debug=debug)
        with terminable(), _debugged(enabled=debug):
            return function(*args, spark_choice=choice, **others)

    for option in (
        click.option("--debug", is_flag=True, help="Also print Spark's log and the traceback of a wrong file."),
        click.option("--conf", multiple=True, metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
        click.option("--memory", metavar="SIZE", help="The heap of Spark's driver.  [default: 1g]"),
        click.option("--threads", type=COUNT, metavar="N", help="As --master 'local[N]'."),
        click.option("--remote", metavar="URL", help="A Spark Connect server: sc://HOST:PORT."),
        click.option(
            "--master",
            metavar="URL",
            help="local[N], spark://HOST:PORT, k8s://URL or yarn.  [default: this machine, a thread per core]",
        ),
    ):
        option(with_choice)
    return with_choice  # type: ignore[return-value]


class SparkChoice:
    """The Spark that the options choose: a remote one, or a local session with its settings."""

    def __init__(
        self,
        master: str | None,
        remote: str | None,
        threads: int | None,
        memory: str,
        settings: dict[str, str],
        *,
        debug: bool,
    ) -> None:
        self._debug = debug
        self._master, self._remote, self._threads = master, remote, threads
        self._memory, self._settings = memory, settings

    @contextmanager
    def session(self, *, for_tables: bool = False) -> Iterator[Any]:
        """Yield a Spark session and stop it. Raises `ConfigurationError` if a package is missing."""
        logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
        with packages_of("spark", "pipelines"):
            # Imported to find missing packages: of all modules of pipelines, this one needs the most.
            from odradek.pipelines import runner  # noqa: F401
            from odradek.spark.connect import remote_session
            from odradek.spark.session import local_session, quiet_calls, stop_session

            quiet_calls()
            if self._remote is not None:
                spark = remote_session(self._remote, self._settings)
            else:
                # Spark reports the failure of a task many times; the pipeline reports it in one sentence.
                level = {} if self._debug else {"spark.log.level": "FATAL"}
                spark = local_session(
                    "odradek pipeline",
                    master=self._master,
                    threads=self._threads,
                    memory=self._memory,
                    settings=level | self._settings,
                    for_tables=for_tables,
                )
        try:
            yield spark
        finally:
            stop_session(spark)


@contextmanager
def _debugged(*, enabled: bool) -> Iterator[None]:
    try:
        yield
    except OdradekError as error:
        if enabled:
            click.echo("".join(traceback.format_exception(error)), err=True)
        raise


def load_files(paths: Sequence[Path]) -> list[PipelineFile]:
    """Return the pipelines of files, and of the sorted `*.toml` files of directories.

    Raises `ConfigurationError` for an invalid file, and `click.UsageError` if two have the same name, checkpoint, or
    group, unless both are members of it.
    """
    files: list[PipelineFile] = []
    for path in (each for given in paths for each in toml_files(given)):
        file = load_file(path)
        for other in files:
            share = all(each.pipeline.source.consume_mode == "group" for each in (file, other))
            for what in ("name", "checkpoint") if share else ("name", "group", "checkpoint"):
                if getattr(file.pipeline, what) == getattr(other.pipeline, what):
                    raise click.UsageError(
                        f"{path}: {other.path} has the same {what}, {getattr(file.pipeline, what)}; choose another one"
                    )
        files.append(file)
    return files
