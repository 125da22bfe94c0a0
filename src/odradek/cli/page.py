"""`odradek page`: the page of a cluster, until SIGTERM or SIGINT.

Standard output has one line, `ready: ADDRESS`, when the page can be opened.
"""

import asyncio
from collections.abc import Sequence

import click

from odradek.cli.common import client_settings, cluster_options, run
from odradek.config import parse_host_port
from odradek.model.extras import packages_of
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
@cluster_options
def command(*, listen: str, role: str, host_names: Sequence[str]) -> None:
    """Serve a page that shows a cluster in a browser, until SIGTERM or SIGINT."""
    host, port = parse_host_port(listen)
    with packages_of("page", "pages"):
        from odradek.page.app import PageApp
        from odradek.page.server import PageServer
        from odradek.page.settings import PageSettings

    settings = PageSettings(client=client_settings(), may_change=role == "operator", host_names=tuple(host_names))

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
