"""Opens the page for `odradek page`, `serve --page` and `up --page`; imports its packages only then."""

import ssl
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec.structs import replace

from odradek.cli.checks import ADDRESS
from odradek.config.zookeeper import ZookeeperKeys
from odradek.model import ConfigurationError, parse_host_port
from odradek.model.extras import packages_of
from odradek.runtime import system_runtime
from odradek.security import is_loopback

if TYPE_CHECKING:
    from odradek.page.server import PageServer
    from odradek.values.value_formats import Show

page_option = click.option(
    "--page", type=ADDRESS, is_flag=False, flag_value="127.0.0.1:8080",
    help="Also serve the page of the cluster, at 127.0.0.1:8080 by default.",
)  # fmt: skip


def check_packages() -> None:
    """Raise `ConfigurationError` with the command to install the page's packages if one is missing."""
    with packages_of("page", "pages"):
        import_module("odradek.page.server")


async def open_page(
    listen: str,
    client: Mapping[str, Any],
    *,
    may_change: bool = True,
    login: bool = False,
    tls: Callable[[], ssl.SSLContext] | None = None,
    host_names: Sequence[str] = (),
    allow_anonymous_network: bool = False,
    masks: Sequence[str] = (),
    schemas: Mapping[str, "Show"] | None = None,
    pipelines: Sequence[Path] = (),
    metadata: str | None = None,
    zookeeper: ZookeeperKeys | None = None,
    command_options: str | None = None,
    clusters: Mapping[str, tuple[Mapping[str, Any], str]] | None = None,
) -> "tuple[PageServer, str]":
    """Open a page of the cluster with these settings of a client; return its server and its address.

    `metadata` is the URL of a metadata tree, which the page shows, too; `zookeeper` has the keys for it.
    `command_options` are those of commands on the same cluster. `clusters` has both by name, for a page of several.

    Raises `ConfigurationError` without the packages, for an address in use, or if other machines could use it unseen.
    """
    host, port = parse_host_port(listen)
    check_packages()
    from odradek.page.app import PageApp
    from odradek.page.clusters import ClusterPages
    from odradek.page.server import PageServer
    from odradek.page.settings import PageSettings, check_exposure

    if metadata is not None:
        from odradek.stores import open_reader  # imported here: most pages need no SQLite

    requires_login = login or not (is_loopback(host) or allow_anonymous_network)
    for each in [settings for settings, _ in clusters.values()] if clusters else [client]:
        check_exposure(host, each, has_tls=tls is not None, requires_login=requires_login)
    if metadata is not None and requires_login:
        raise ConfigurationError(
            "the metadata tree has no ACLs for users of the cluster, so each user who logs in could read all of it: "
            "leave out --metadata, or show the tree on a page of its own on localhost without --login"
        )
    formats, runtime = schemas or {}, system_runtime()
    settings = PageSettings(
        client=client,
        may_change=may_change,
        requires_login=requires_login,
        host_names=tuple(host_names),
        masks=tuple(masks),
        schemas=formats,
        pipelines=tuple(pipelines),
        formats={f"{name}.value": name for name in formats},
        command_options=command_options,
        open_tree=None if metadata is None else lambda: open_reader(metadata, runtime, zookeeper=zookeeper),
    )
    named = {
        name: replace(settings, client=each, command_options=options, cluster=name, clusters=tuple(clusters or ()))
        for name, (each, options) in (clusters or {}).items()
    }
    pages = ClusterPages({name: PageApp(each, runtime) for name, each in named.items()})
    server = PageServer(pages if named else PageApp(settings, runtime), runtime)
    return server, await server.open(host, port, tls)
