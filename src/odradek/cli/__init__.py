"""The entry point of the command `odradek`; a subcommand's module is imported when it runs.

The module or package `cli.<name>` has a click command called `command`. `COMMANDS` has its line of help, so that
`odradek --help` imports no command. An `OdradekError` or `OSError` becomes one line on stderr and exit code 1; what the
user gave wrongly exits with 2 (`exit_code`), Ctrl-C with 130, and a closed pipe silently with 141.
"""

import gc
import importlib
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

import click

from odradek import __version__

COMMANDS: Final = {
    "serve": "Run one broker until SIGTERM or SIGINT.",
    "up": "Run several brokers on this machine.",
    "topics": "Create, list, describe, alter and delete topics.",
    "groups": "List, describe, watch and delete groups; reset their offsets.",
    "configs": "Show and change the configuration of topics and brokers.",
    "acls": "List, add, remove and explain ACLs.",
    "partitions": "Describe and reassign partitions, elect leaders, delete records.",
    "cluster": "Describe the cluster, and the replicas that move.",
    "brokers": "List and describe brokers, and move replicas off one.",
    "users": "Add, list and delete users that authenticate by SCRAM.",
    "quotas": "List, set and remove quotas of users, clients and IP addresses.",
    "transactions": "List, describe and abort transactions; find hanging ones.",
    "metadata": "Read and write the metadata tree; adopt a data directory of Apache Kafka.",
    "produce": "Write records from stdin or a file.",
    "consume": "Read records to stdout.",
    "log": "Print and verify a partition's files.",
    "lab": "Explain and simulate an assignment or a rebalance.",
    "page": "Show a cluster in a browser.",
    "pipeline": "Run a Spark pipeline from a TOML file.",
    "table": "Describe, check and tidy the Iceberg tables that pipelines write.",
    "spark": "Print settings for Spark sessions of your own.",
    "sim": "Play clusters with faults in virtual time, and check every promise.",
    "bench": "Compare Odradek with its peers on this machine.",
}
"""Every command and its line of help, in the order of `odradek --help`."""
_BENCHMARKS: Final = Path(__file__).parents[3] / "bench" / "commands.py"
"""A file of a source tree: an installed package has no benchmarks."""


class _OneLineError(click.ClickException):
    """An error for users: one line, no traceback."""

    def __init__(self, error: Exception) -> None:
        super().__init__(_os_error(error) if isinstance(error, OSError) else str(error))
        self.exit_code = exit_code(error)  # type: ignore[misc]

    def show(self, file: Any = None) -> None:
        from odradek.model.texts import one_line

        click.echo(f"odradek: {one_line(' '.join(self.message.split()))}", file=file or sys.stderr)


_CLUSTER_OPTIONS: Final = ("--bootstrap-server", "-b", "--command-config", "--profile", "--timeout")


class CommandGroup(click.Group):
    """A group that takes the options for the cluster before the command's name, too, and suggests similar names."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the group's own options; hand leading options for the cluster on to the command."""
        moved: list[str] = []
        while args and (args[0].startswith("-b") or args[0].partition("=")[0] in _CLUSTER_OPTIONS):
            words = 2 if args[0] in _CLUSTER_OPTIONS else 1
            moved, args = [*moved, *args[:words]], args[words:]
        if args and not args[0].startswith("-"):
            args = [args[0], *moved, *args[1:]]
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of that name. Fail with similar names if there is none."""
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            from difflib import get_close_matches

            similar = get_close_matches(args[0], self.list_commands(ctx))
            hint = f" Did you mean {' or '.join(map(repr, similar))}?" if similar else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


class LazyGroup(CommandGroup):
    """A group whose commands are modules of this package. `topic` and `topics` are the same command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of `COMMANDS`, without `bench` in an installed package."""
        del ctx
        return [name for name in COMMANDS if name != "bench" or _BENCHMARKS.is_file()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the module of `cmd_name`, in singular or plural; return None if there is no such command."""
        forms = (cmd_name, f"{cmd_name}s", cmd_name.removesuffix("s"))
        cmd_name = next((form for form in forms if form in COMMANDS), "")
        if not cmd_name:
            return None
        # Garbage collections during imports find nothing, and take a tenth of the time.
        gc.disable()
        try:
            command: click.Command = importlib.import_module(f"{__name__}.{cmd_name}").command
        finally:
            gc.freeze()
            gc.enable()
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command of that name. SIGTERM stops pipelines as Ctrl-C does, from their slow imports on."""
        if args[0].removesuffix("s") == "pipeline":
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            return super().resolve_command(ctx, args)
        except KeyboardInterrupt:
            click.echo(f"odradek: {args[0]}: stopped before it began", err=True)
            raise

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the lines of `COMMANDS`, without importing any command."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name]) for name in self.list_commands(ctx)])

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Parse the arguments, which may print the help text."""
        try:
            return super().make_context(*args, **options)
        except BrokenPipeError:
            raise _closed_pipe() from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; turn an error into one line on stderr and an exit code."""
        _open_standard_files()
        on_sigterm = signal.getsignal(signal.SIGTERM)
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            # The first case, so that Ctrl-C ends the command at once, without an import.
            ctx.exit(128 + signal.SIGINT)
        except BrokenPipeError:
            raise _closed_pipe() from None
        except (_odradek_error(), OSError) as error:
            raise _OneLineError(error) from error
        finally:
            if signal.getsignal(signal.SIGTERM) is not on_sigterm:
                signal.signal(signal.SIGTERM, on_sigterm)
        return result


def _closed_pipe() -> click.exceptions.Exit:
    """Return the end of a command whose reader has closed its end. Python would complain when it flushes stdout."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return click.exceptions.Exit(128 + signal.SIGPIPE)


def _open_standard_files() -> None:
    """Open /dev/null in place of standard files that the parent process has closed.

    Otherwise the next opened file would get such a descriptor: libuv aborts then, and text for stderr would go into
    that file.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            try:
                os.fstat(number)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # the lowest number that is free
            setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115 - till the end


def _odradek_error() -> type[Exception]:
    """Return `OdradekError`. It is imported only after an exception, because the import is slow."""
    from odradek.model import OdradekError

    return OdradekError


def exit_code(error: Exception) -> int:
    """Return 2 if the user's arguments or files are wrong, and 1 for every other error."""
    from odradek.model import is_mistake

    return 2 if is_mistake(error) else 1


def _os_error(error: OSError) -> str:
    """Return `FILE: No such file or directory` or the like."""
    reason = error.strerror or str(error) or type(error).__name__
    return f"{error.filename}: {reason}" if error.filename else reason


def _show_version(context: click.Context, _option: click.Parameter, wanted: object) -> None:
    if wanted:
        from odradek.kernels import MISSING

        click.echo(f"odradek {__version__}, records by " + (f"Python: {MISSING}" if MISSING else "C"))
        context.exit()


_VERSION: Final = "Show the version, and whether the library for records is there."


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    epilog="Commands for a cluster take -b HOST:PORT[,HOST:PORT...], --profile, --command-config and --timeout, also "
    "before the command's name. The cluster may be any with Kafka's protocol; TLS and SASL are set in the file of "
    "--command-config or in a profile.",
)
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help=_VERSION)
def main() -> None:
    """Odradek: a Kafka cluster in Python, and the tools to use one."""


__all__ = ["COMMANDS", "LazyGroup", "exit_code", "main"]
