"""`odradek page`: the page of a cluster, until SIGTERM or SIGINT.

Standard output has one line, `ready: ADDRESS`, when the page can be opened.
"""

import asyncio
from collections.abc import Sequence

import click

from odradek.cli.common import client_settings, cluster_options, run
from odradek.config import parse_host_port
from odradek.model.extras import packages_of
from odradek.presentation.value_formats import SCHEMA_FORMATS, Show, shower
from odradek.runtime import system_runtime


@click.command(name="page")
@click.option(
    "--listen",
    default="127.0.0.1:8080",
    show_default=True,
    metavar="HOST:PORT",
    help="The page's address; port 0 takes a free one.",
)
@click.option(
    "--role", type=click.Choice(("viewer", "operator")), default="operator", show_default=True,
    help="Whether users may change the cluster.",
)  # fmt: skip
@click.option(
    "--host-name",
    "host_names",
    multiple=True,
    metavar="NAME",
    help="A name of this machine in browsers; may be repeated.",
)
@click.option(
    "--mask", "masks", multiple=True, metavar="NAME|/REGEX/", help="Hide fields of this name, or texts, in messages."
)
@click.option(
    "--schema",
    "schemas",
    multiple=True,
    metavar="NAME=FORMAT:FILE",
    help="A format of messages, the first choice for the topic NAME: avro:order.avsc, protobuf:FILE:MESSAGE.",
)
@cluster_options
def command(*, listen: str, role: str, host_names: Sequence[str], masks: Sequence[str], schemas: Sequence[str]) -> None:
    """Serve a page that shows a cluster in a browser, until SIGTERM or SIGINT."""
    host, port = parse_host_port(listen)
    with packages_of("page", "pages"):
        from odradek.page.app import PageApp
        from odradek.page.messages.masking import Masks
        from odradek.page.server import PageServer
        from odradek.page.settings import PageSettings

    Masks(masks)  # raises for a wrong expression now, not for each message
    formats = dict(map(_schema, schemas))
    settings = PageSettings(
        client=client_settings(),
        may_change=role == "operator",
        host_names=tuple(host_names),
        masks=tuple(masks),
        schemas=formats,
        formats={f"{name}.value": name for name in formats},
    )

    async def work() -> None:
        runtime = system_runtime()
        server = PageServer(PageApp(settings, runtime), runtime)
        address = await server.open(host, port)
        try:
            click.echo(f"ready: {address}")
            await asyncio.Event().wait()
        finally:
            await server.close()

    run(work())


def _schema(text: str) -> tuple[str, Show]:
    """Parse NAME=FORMAT:FILE. Raises `click.UsageError`."""
    name, equals, rest = text.partition("=")
    format_name, colon, schema = rest.partition(":")
    if not (name and equals and colon and schema) or format_name not in SCHEMA_FORMATS:
        raise click.BadParameter(
            f"{text!r} is not NAME=FORMAT:FILE with a format of {', '.join(SCHEMA_FORMATS)}", param_hint="--schema"
        )
    return name, shower(format_name, schema, option="schema")
