"""`odradek users add|list|delete`: the SCRAM credentials of users. A password is never an argument."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from odradek.broker.cluster.config_changes import ConfigChange, write_changes
from odradek.broker.cluster.registration.broker_session import prepare_tree
from odradek.cli import CommandGroup
from odradek.cli.checks import TREE_URL
from odradek.cli.common import (
    cluster_options,
    print_json,
    print_table,
    run,
    say,
    table_options,
    with_admin,
    zookeeper_config_option,
    zookeeper_keys,
)
from odradek.clients import Admin
from odradek.clients.admin.user_credentials import UserScramCredentialDeletion, UserScramCredentialUpsertion
from odradek.metadata import paths
from odradek.model import ConfigurationError, ErrorCode, KafkaError
from odradek.runtime import system_runtime
from odradek.security.sasl.scram import (
    FEWEST_ITERATIONS,
    MOST_ITERATIONS,
    SCRAM_MECHANISMS,
    encode_credential,
    scram_credential,
)
from odradek.stores import open_store
from odradek.stores.opening import READER_CONNECTION_TIMEOUT_MS

F = TypeVar("F", bound=Callable[..., Any])
_MECHANISMS: Final = tuple(SCRAM_MECHANISMS.values())
_SALT_BYTES: Final = 32


def _mechanism_option(function: F) -> F:
    return click.option(
        "--mechanism", "-m", "mechanisms", type=click.Choice(_MECHANISMS), multiple=True,
        help="Only this mechanism; may be repeated.  [default: both]",
    )(function)  # fmt: skip


@click.group(name="users", cls=CommandGroup)
def command() -> None:
    """Add, list and delete users that authenticate by SCRAM."""


@command.command()
@click.argument("user")
@_mechanism_option
@click.option(
    "--iterations", type=click.IntRange(FEWEST_ITERATIONS, MOST_ITERATIONS), default=FEWEST_ITERATIONS,
    show_default=True, help="More make a stolen credential harder to guess from, and each login slower.",
)  # fmt: skip
@click.option(
    "--password-file", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
    help="The password; by default from a prompt or standard input.",
)  # fmt: skip
@click.option(
    "--metadata", type=TREE_URL, help="Write to this metadata tree, without a broker: for the first users of a cluster."
)
@zookeeper_config_option
@cluster_options
def add(
    *, user: str, mechanisms: Sequence[str], iterations: int, password_file: str | None, metadata: str | None
) -> None:
    """Add USER, or change the user's password."""
    if not user:
        raise click.UsageError("a user's name is not empty")
    chosen, password = mechanisms or _MECHANISMS, _password(user, password_file)
    if metadata is not None:
        run(_write(metadata, user, password, chosen, iterations))
    else:
        upsertions = [
            UserScramCredentialUpsertion(user=user, mechanism=each, password=password, iterations=iterations)
            for each in chosen
        ]

        with_admin(lambda client: client.alter_user_scram_credentials(upsertions))
    say(f"user {user} authenticates by {' and '.join(chosen)}")


@command.command(name="list")
@click.argument("names", nargs=-1, metavar="[USER]...")
@table_options
@cluster_options
def list_users(*, names: Sequence[str], as_json: bool) -> None:
    """List users with their mechanisms, by default all that authenticate by SCRAM."""
    found = with_admin(lambda client: client.describe_user_scram_credentials(names))
    if as_json:
        for user, credentials in found.items():
            print_json({"user": user, "credentials": credentials})
        return
    rows = [(user, each.mechanism, each.iterations) for user, credentials in found.items() for each in credentials]
    print_table(("USER", "MECHANISM", "ITERATIONS"), rows)


@command.command()
@click.argument("user")
@_mechanism_option
@cluster_options
def delete(*, user: str, mechanisms: Sequence[str]) -> None:
    """Delete the credentials of USER: new logins fail at once, sessions when they have to be renewed."""

    async def work(client: Admin) -> list[str]:
        present = [each.mechanism for each in (await client.describe_user_scram_credentials([user])).get(user, ())]
        chosen = [each for each in mechanisms or present if each in present]
        if not chosen:
            raise KafkaError(ErrorCode.resource_not_found, f"user {user} has no such credential")
        await client.alter_user_scram_credentials(
            [UserScramCredentialDeletion(user=user, mechanism=each) for each in chosen]
        )
        return chosen

    say(f"user {user} no longer authenticates by {' or '.join(with_admin(work))}")


def _password(user: str, file: str | None) -> str:
    """Return the password of a file, of a prompt, or of standard input, without its line end."""
    try:
        if file is not None:
            text = Path(file).read_text(encoding="utf-8-sig")
        elif sys.stdin.isatty():
            text = str(click.prompt(f"Password of {user}", hide_input=True, confirmation_prompt=True))
        else:
            text = sys.stdin.readline()
    except UnicodeDecodeError:
        raise ConfigurationError("the password is not UTF-8 text") from None
    password = text.removesuffix("\n").removesuffix("\r")
    if not password or "\n" in password:
        raise ConfigurationError("a password is one line of text, and not empty")
    return password


async def _write(url: str, user: str, password: str, mechanisms: Sequence[str], iterations: int) -> None:
    """Write credentials to a tree, which is created if it is new; say so, because the URL may be a wrong one."""
    runtime = system_runtime()
    made = {
        each: encode_credential(
            scram_credential(each, password, salt=runtime.entropy.randbytes(_SALT_BYTES), iterations=iterations)
        )
        for each in mechanisms
    }
    store = open_store(url, runtime, connection_timeout_ms=READER_CONNECTION_TIMEOUT_MS, zookeeper=zookeeper_keys())
    try:
        await prepare_tree(store, runtime.entropy)
        (error,) = await write_changes(store, [ConfigChange(user=user, change=lambda before: {**before, **made})])
        if error is not None:
            raise error
        if not await store.children(paths.BROKER_REGISTRATIONS):
            say(f"odradek: no broker has used the tree {url} yet: start brokers with this --metadata", is_remark=True)
    finally:
        await store.close()
