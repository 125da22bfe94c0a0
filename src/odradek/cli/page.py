"""`odradek page`: the page of a cluster, until SIGTERM or SIGINT.

Standard output has one line, `ready: ADDRESS`, when the page can be opened.
"""

import logging
import re
import ssl
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from odradek.cli.checks import ADDRESS, TREE_URL
from odradek.cli.common import (
    choose_cluster,
    client_settings,
    cluster_arguments,
    cluster_options,
    run,
    zookeeper_config_option,
    zookeeper_keys,
)
from odradek.cli.page_server import check_packages, open_page
from odradek.cli.process import stop_on_signals
from odradek.model import ConfigurationError, OdradekError
from odradek.runtime.tls import TlsSettings, server_context
from odradek.values.value_formats import SCHEMA_FORMATS, Show, shower

_CLUSTER: Final = re.compile(r"[\w-][\w.-]*", re.ASCII)
_log = logging.getLogger("odradek.page.command")


@click.command(name="page")
@click.option(
    "--listen", type=ADDRESS, default="127.0.0.1:8080", show_default=True,
    help="The page's address; port 0 takes a free one.",
)  # fmt: skip
@click.option(
    "--role", type=click.Choice(("viewer", "operator")), default="operator", show_default=True,
    help="Whether users may change the cluster.",
)  # fmt: skip
@click.option(
    "--cluster", "clusters", multiple=True, metavar="NAME[=FILE]",
    help="Show several clusters: that of the profile NAME, or of client settings; may be repeated.",
)  # fmt: skip
@click.option("--login", is_flag=True, help="Users log in to the cluster, also on this machine.")
@click.option("--tls-certificate", metavar="FILE", help="Serve https: the certificate chain, PEM.")
@click.option("--tls-key", metavar="FILE", help="Its private key, if that is in a file of its own, PEM.")
@click.option(
    "--host-name", "host_names", multiple=True, metavar="NAME", help="A name of the page in browsers; may be repeated."
)
@click.option(
    "--allow-anonymous-network", is_flag=True, help="Let browsers of other machines use the page without login and TLS."
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
@click.option(
    "--pipelines", multiple=True, metavar="DIR|FILE.toml", type=click.Path(exists=True, path_type=Path),
    help="Show pipelines of this machine; may be repeated.",
)  # fmt: skip
@click.option(
    "--metadata", type=TREE_URL, help="Show this metadata tree: sqlite:///PATH or zookeeper://HOST:PORT[,…]/CHROOT."
)
@zookeeper_config_option
@cluster_options
def command(
    *,
    listen: str,
    role: str,
    clusters: Sequence[str],
    login: bool,
    tls_certificate: str | None,
    tls_key: str | None,
    host_names: Sequence[str],
    allow_anonymous_network: bool,
    masks: Sequence[str],
    schemas: Sequence[str],
    pipelines: Sequence[Path],
    metadata: str | None,
) -> None:
    """Serve a page that shows a cluster in a browser, until SIGTERM or SIGINT.

    Browsers of other machines need a login with SASL credentials of the cluster, and TLS.
    """
    if tls_key is not None and tls_certificate is None:
        raise click.UsageError("--tls-key needs --tls-certificate")
    tls = None if tls_certificate is None else _tls(tls_certificate, tls_key)
    check_packages()
    from odradek.page.messages.masking import Masks

    Masks(masks)  # raises for a wrong expression now, not for each message
    formats = dict(map(_schema, schemas))
    if clusters and (cluster_arguments() or metadata is not None):
        raise click.UsageError("--cluster names the clusters: leave out -b, --command-config, --profile and --metadata")
    client, options = client_settings(), cluster_arguments()
    several = dict(map(_cluster, clusters))
    if len(several) < len(clusters):
        raise click.UsageError("two clusters have one name: --cluster NAME=FILE gives each its own")

    async def work() -> None:
        _log.setLevel(logging.INFO)
        stopping = stop_on_signals(_log)
        server, address = await open_page(
            listen, client, may_change=role == "operator", login=login, tls=tls, host_names=host_names,
            allow_anonymous_network=allow_anonymous_network, masks=masks, schemas=formats, pipelines=pipelines,
            metadata=metadata, command_options=options, clusters=several,
            zookeeper=None if metadata is None else zookeeper_keys(),
        )  # fmt: skip
        try:
            click.echo(f"ready: {address}")
            await stopping.wait()
        finally:
            await server.close()

    run(work())


def _cluster(text: str) -> tuple[str, tuple[dict[str, Any], str]]:
    """Parse NAME[=FILE]; return the name, the settings of a client, and the options of commands."""
    name, equals, file = text.partition("=")
    if not _CLUSTER.fullmatch(name):
        raise click.BadParameter(
            f"{text!r} is not NAME or NAME=FILE with a NAME of a-z, 0-9, -, _ and .", param_hint="--cluster"
        )
    choose_cluster(None if equals else name, file or None)
    return name, (client_settings(), cluster_arguments())


def _schema(text: str) -> tuple[str, Show]:
    """Parse NAME=FORMAT:FILE. Raises `click.UsageError`."""
    name, equals, rest = text.partition("=")
    format_name, colon, schema = rest.partition(":")
    if not (name and equals and colon and schema) or format_name not in SCHEMA_FORMATS:
        raise click.BadParameter(
            f"{text!r} is not NAME=FORMAT:FILE with a format of {', '.join(SCHEMA_FORMATS)}", param_hint="--schema"
        )
    return name, shower(format_name, schema, option="schema")


def _tls(certificate: str, key: str | None) -> Callable[[], ssl.SSLContext]:
    """Return what makes the TLS of a connection. Raises `ConfigurationError` if a file is none of its kind."""
    texts = []
    for path in filter(None, (certificate, key)):
        try:
            texts.append(Path(path).read_text(encoding="ascii"))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigurationError(f"can't read {path}: {getattr(error, 'strerror', 'it is not PEM')}") from None
    try:
        context = server_context(TlsSettings(own_chain=texts[0], own_key="".join(texts[1:])), client_auth="none")
    except OdradekError as error:
        reason = str(error).replace("ssl.keystore.key and ssl.keystore.certificate.chain", "--tls-certificate")
        raise ConfigurationError(reason) from None
    return lambda: context
