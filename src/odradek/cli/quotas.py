"""`odradek quotas`: list, set and remove quotas of users, client ids and IP addresses."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import click

from odradek.cli import CommandGroup
from odradek.cli.checks import key_and_value, usage_errors
from odradek.cli.common import cluster_options, options, print_json, print_table, say, table_options, with_admin
from odradek.clients import Admin
from odradek.security.quotas import QuotaEntity, check_entity, check_key, quota_text

_entity_options = options(
    click.option("--user", metavar="NAME", help="A user."),
    click.option("--default-user", is_flag=True, help="Users without a quota of their own."),
    click.option("--client-id", metavar="ID", help="A client id; with a user, that user's client."),
    click.option("--default-client-id", is_flag=True, help="Client ids without a quota of their own."),
    click.option("--ip", metavar="ADDRESS", help="An IP address."),
    click.option("--default-ip", is_flag=True, help="Addresses without a quota of their own."),
)


@click.group(name="quotas", cls=CommandGroup)
def command() -> None:
    """Limit what users, client ids and IP addresses may use of each broker."""


@command.command(name="list")
@table_options
@cluster_options
def list_quotas(*, as_json: bool) -> None:
    """List all quotas."""
    found = with_admin(lambda client: client.describe_client_quotas())
    if as_json:
        for entity, quotas in found.items():
            names = {kind.replace("-", "_"): name or None for kind, name in entity.parts.items()}
            print_json({"entity": names, "quotas": quotas})
        return
    print_table(
        ("ENTITY", "QUOTA", "VALUE"),
        sorted(
            (str(entity), key, f"{value:.15g}") for entity, quotas in found.items() for key, value in quotas.items()
        ),
    )


@command.command(name="set")
@click.argument("quotas", nargs=-1, required=True, metavar="KEY=VALUE...")
@_entity_options
@click.option("--validate-only", is_flag=True, help="Only check whether it is possible.")
@cluster_options
def set_quotas(*, quotas: Sequence[str], validate_only: bool, **names: Any) -> None:
    """Set quotas of one entity, each per broker and effective at once.

    Users and client ids have producer_byte_rate and consumer_byte_rate (bytes/s), request_percentage (of a broker's
    time) and controller_mutation_rate (partitions/s); IP addresses have connection_creation_rate (connections/s).
    """
    wanted = {key: _number(key, value) for key, value in map(key_and_value, quotas)}
    entity = _entity(wanted, **names)
    with_admin(lambda client: client.alter_client_quotas(entity, wanted, validate_only=validate_only))
    say(f"{entity}: {'these quotas are possible' if validate_only else 'quotas set'}")


@command.command()
@click.argument("keys", nargs=-1, metavar="[KEY...]")
@_entity_options
@cluster_options
def remove(*, keys: Sequence[str], **names: Any) -> None:
    """Remove quotas of one entity, all of them by default."""
    entity = _entity(keys=keys, **names)

    async def work(client: Admin) -> None:
        present = (await client.describe_client_quotas()).get(entity, {})
        for key in keys:
            if key not in present:
                say(f"odradek: {entity} has no quota {key}, and nothing is removed", is_remark=True)
        await client.alter_client_quotas(entity, dict.fromkeys(keys or present))
        say(f"{entity}: {'quotas removed' if keys or present else 'there are no quotas'}")

    with_admin(work)


def _entity(quotas: Mapping[str, float] = MappingProxyType({}), keys: Sequence[str] = (), **names: Any) -> QuotaEntity:
    """Return the entity that the options name. Fails if it cannot have these quotas or keys."""
    kinds = {kind: kind.replace("-", "_") for kind in ("user", "client-id", "ip")}
    parts = [(kind, names[option]) for kind, option in kinds.items() if names[option] is not None]
    with usage_errors():
        entity = check_entity(parts + [(kind, None) for kind, option in kinds.items() if names[f"default_{option}"]])
        for key in (*quotas, *keys):
            check_key(entity, key)
        for key, value in quotas.items():
            quota_text(key, value)
    return entity


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.UsageError(f"{key} is a number, not {text!r}") from None
