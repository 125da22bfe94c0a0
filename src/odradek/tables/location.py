"""Where a table is, and its catalog.

A `path` alone is a local directory with a catalog of its own, which holds this one table:

    PATH/catalog.db                   SQLite: the table `odradek.table` and the name of its metadata file
    PATH/metadata/*.metadata.json     and manifests, as Iceberg has them
    PATH/metadata/version-hint.text   the name of the metadata file, for readers that look for no catalog
    PATH/data/*.parquet

A `table` is a name in any other catalog that pyiceberg knows (SQL, REST, Glue, Hive), with pyiceberg's properties.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from msgspec import Struct

from odradek.config.secrets import ClientOptions
from odradek.model import (
    AuthenticationError,
    ConfigurationError,
    OdradekError,
    PreconditionError,
    StorageError,
    UnavailableError,
    packages_of,
)
from odradek.runtime import system_runtime

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

CATALOG_FILE: Final = "catalog.db"
NAMESPACE: Final = "odradek"
IDENTIFIER: Final = (NAMESPACE, "table")
_LOCKED_S: Final = 30
"""How long another process may hold the lock of a SQLite catalog, which commits take for milliseconds."""
_SECRET: Final = re.compile(r"secret|password|token|credential|account-key", re.IGNORECASE)
"""Keys of a catalog's properties whose values no text shows."""
_IN_URL: Final = re.compile(r"(?<=://)[^/\s]+(?=@)|(?<=://)[^/:\s]+:\S+(?=@)|(?<=[?&])[^=&\s]+=[^&\s'\")]+")
"""The user and the parameters of a URL."""
_REFUSED: Final = re.compile(
    r"UnauthorizedError|ForbiddenError|OAuthError|NoCredentialsError|ACCESS_DENIED|AccessDenied|InvalidAccessKeyId|"
    r"SignatureDoesNotMatch|UnrecognizedClient|InvalidClientTokenId|password authentication failed|HTTP status 40[13]"
)
_LOCKED: Final = re.compile(r"database is locked|database table is locked")
_DAMAGED: Final = re.compile(r"file is not a database|database disk image is malformed|no such column")
_LOST: Final = re.compile(r"unable to open database file|readonly database|disk I/O error|database or disk is full")


class TableLocation(Struct, frozen=True, kw_only=True):
    """A table's place: a `path`, or a `table` in the catalog of that name and those properties."""

    path: str | None = None
    table: str | None = None
    catalog: str = "default"
    properties: ClientOptions = ClientOptions()

    def __str__(self) -> str:
        return self.path if self.path is not None else f"{self.table}"


def parse_location(given: Mapping[str, str]) -> TableLocation:
    """Return the place that the keys `path`, or `table`, `catalog` and `catalog.*` give.

    Raise `ConfigurationError` for keys that do not go together, and for a path that is a URL.
    """
    path, table, catalog = (given.get(key, "").strip() for key in ("path", "table", "catalog"))
    properties = ClientOptions(
        (key.removeprefix("catalog."), value) for key, value in given.items() if key.startswith("catalog.")
    )
    if bool(path) == bool(table):
        raise ConfigurationError("a table needs path, a directory, or table, a name in a catalog: give one of them")
    if path:
        if catalog or properties:
            raise ConfigurationError(
                "path has a catalog of its own: for another catalog give table instead, as NAMESPACE.NAME"
            )
        path = path.removeprefix("file://").removeprefix("file:")  # Spark writes file:/DIRECTORY, too
        if "://" in path:
            raise ConfigurationError(
                f"path is a local directory, not {_IN_URL.sub('…', path)}: for a warehouse elsewhere give table, as "
                "NAMESPACE.NAME, with catalog.uri and catalog.warehouse"
            )
        return TableLocation(path=str(Path(path).absolute()))
    if "." not in table:
        raise ConfigurationError(f"table is NAMESPACE.NAME, not {table!r}")
    return TableLocation(table=table, catalog=catalog or "default", properties=properties)


@contextmanager
def table_errors(location: TableLocation) -> Iterator[None]:
    """Turn errors of pyiceberg and of the libraries below it into Odradek's. Their texts are printed without secrets.

    The libraries of catalogs and storages have no base class of errors, so every other error counts as temporary.
    """
    try:
        with packages_of("tables", "tables"):
            yield
    except (OdradekError, AssertionError):
        raise
    except Exception as error:
        text = _sentence(error, location)
        # A traceback shows the texts of the errors before.
        raise _error(error, text, location) from (error if text in str(error) else None)


def _error(error: Exception, text: str, location: TableLocation) -> OdradekError:
    kind = type(error).__name__
    if isinstance(error, FileNotFoundError) or "FileNotFoundError" in text:  # a REST server's text
        return StorageError(f"the table {location} has lost a file, or was moved: {text}")
    if _REFUSED.search(f"{kind}: {text}"):
        return AuthenticationError(f"the catalog or the warehouse refuses access to {location}: {kind}: {text}")
    if _LOCKED.search(text):
        return UnavailableError(f"the catalog of {location} is locked by another process")
    if _DAMAGED.search(text):
        return StorageError(f"{location}/{CATALOG_FILE} is not a catalog of Iceberg: {text}")
    if (isinstance(error, OSError) and error.errno) or _LOST.search(text):
        return StorageError(f"the table {location} cannot be used: {text}")
    return UnavailableError(f"the table {location} cannot be used: {kind}: {text}")


def _sentence(error: Exception, location: TableLocation) -> str:
    """Return the first line of an error, without the secrets of URLs and of the catalog's properties."""
    cause = getattr(error, "orig", None) or error  # SQLAlchemy's text has the statement, too
    text = (str(cause).splitlines() or [type(error).__name__])[0]
    for secret in (value.rpartition(":")[2] for key, value in location.properties.items() if _SECRET.search(key)):
        if secret:
            text = text.replace(secret, "…")  # of a credential CLIENT:SECRET the second part
    return _IN_URL.sub("…", text)


def open_catalog(location: TableLocation, *, create: bool) -> "Catalog | None":
    """Return the catalog; None if `path` has none and `create` is off. Call it within `table_errors`.

    Raise `PreconditionError` for a path that holds something else, and `ConfigurationError` for unknown properties.
    """
    from pyiceberg.catalog import load_catalog

    if location.path is None:
        try:
            return load_catalog(location.catalog, **location.properties)
        except ValueError as error:
            raise ConfigurationError(
                f"the catalog {location.catalog} cannot be opened: {_sentence(error, location)}: give catalog.uri, or "
                "an entry of that name in ~/.pyiceberg.yaml"
            ) from None
    directory, disk = location.path, system_runtime().disk
    file = f"{directory}/{CATALOG_FILE}"
    if not disk.exists(file):
        if disk.exists(directory) and (not disk.is_directory(directory) or disk.list(directory)):
            raise PreconditionError(f"{directory} holds something else than a table: it has no {CATALOG_FILE}")
        if not create:
            return None
        from odradek.tables.synced_files import make_directories

        make_directories(Path(directory))
    uri = f"sqlite:///{quote(file)}?timeout={_LOCKED_S}"
    files = {"py-io-impl": "odradek.tables.synced_files.SyncedFileIO"}
    return load_catalog("odradek", type="sql", uri=uri, warehouse=directory, **files)


def identifier_of(location: TableLocation) -> tuple[str, ...]:
    return IDENTIFIER if location.path is not None else tuple(str(location.table).split("."))


def load_table(location: TableLocation) -> "Table | None":
    """Return the table with its newest metadata; None if there is none. Raise `OdradekError` if it can't be read."""
    with table_errors(location):
        catalog = open_catalog(location, create=False)
        return None if catalog is None else find_table(catalog, location)


def find_table(catalog: "Catalog", location: TableLocation) -> Any:
    """Return the table in `catalog`, or None. Call it within `table_errors`."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        return catalog.load_table(identifier_of(location))
    except (NoSuchNamespaceError, NoSuchTableError):
        return None


def existing_table(location: TableLocation) -> "Table":
    """Return the table. Raise `PreconditionError` if there is none."""
    table = load_table(location)
    if table is None:
        raise PreconditionError(f"there is no table {location}")
    return table
