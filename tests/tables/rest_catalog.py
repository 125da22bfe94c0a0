"""A REST catalog of Iceberg on loopback, over a SQLite catalog of pyiceberg: what a table's sink calls, with a token.

Routes of Iceberg's `rest-catalog-open-api.yaml`: config, namespaces, create (also staged), load, commit, drop.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, ClassVar

from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import CreateTableRequest
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.schema import Schema
from pyiceberg.table import CommitTableRequest

_STATUS = {
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    CommitFailedException: 409,
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
}


class RestCatalogServer(ThreadingHTTPServer):
    """The server; `fault` is called before the answer to a commit, and may raise in place of it."""

    daemon_threads = True

    def __init__(self, catalog: Catalog, token: str) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.catalog = catalog
        self.token = token
        self.fault: Callable[[], None] = lambda: None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: RestCatalogServer
    protocol_version = "HTTP/1.1"
    routes: ClassVar[dict[str, str]] = {
        "GET /v1/config": "config",
        "POST /v1/namespaces": "create_namespace",
        "GET /v1/namespaces/([^/]+)": "namespace",
        "POST /v1/namespaces/([^/]+)/tables": "create_table",
        "GET /v1/namespaces/([^/]+)/tables/([^/]+)": "table",
        "POST /v1/namespaces/([^/]+)/tables/([^/]+)": "commit",
        "DELETE /v1/namespaces/([^/]+)/tables/([^/]+)": "drop",
    }

    def config(self) -> Any:
        return {"defaults": {}, "overrides": {}}

    def create_namespace(self) -> Any:
        namespace = self.content["namespace"]
        self.server.catalog.create_namespace(tuple(namespace))
        return {"namespace": namespace, "properties": {}}

    def namespace(self, name: str) -> Any:
        return {"namespace": [name], "properties": dict(self.server.catalog.load_namespace_properties(name))}

    def create_table(self, namespace: str) -> Any:
        request = CreateTableRequest.model_validate({"location": None} | self.content)
        given = {
            "location": request.location,
            "partition_spec": request.partition_spec,
            "sort_order": request.write_order,
            "properties": request.properties,
        }
        given = {key: value for key, value in given.items() if value is not None}
        catalog = self.server.catalog
        if request.stage_create:
            if catalog.table_exists((namespace, request.name)):
                raise TableAlreadyExistsError(f"Table already exists: {namespace}.{request.name}")
            staged = catalog.create_table_transaction((namespace, request.name), request.table_schema, **given)
            return _answer(None, staged.table_metadata)
        table = catalog.create_table((namespace, request.name), request.table_schema, **given)
        return _answer(table.metadata_location, table.metadata)

    def table(self, namespace: str, name: str) -> Any:
        table = self.server.catalog.load_table((namespace, name))
        return _answer(table.metadata_location, table.metadata)

    def commit(self, namespace: str, name: str) -> Any:
        request = CommitTableRequest.model_validate(self.content)
        catalog = self.server.catalog
        try:
            table = catalog.load_table((namespace, name))
        except NoSuchTableError:
            table = catalog.create_table_transaction((namespace, name), Schema())._table  # for its name alone
        done = catalog.commit_table(table, request.requirements, request.updates)
        self.server.fault()
        return _answer(done.metadata_location, done.metadata)

    def drop(self, namespace: str, name: str) -> Any:
        self.server.catalog.drop_table((namespace, name))
        return None

    def handle_request(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        encoded = self.rfile.read(size)
        if self.headers.get("Authorization") != f"Bearer {self.server.token}":
            self.answer(401, _error("NotAuthorizedException", 401, f"no access with {self.headers['Authorization']}"))
            return
        self.content = json.loads(encoded) if size else {}
        called = f"{self.command} {self.path.partition('?')[0]}"
        for pattern, name in self.routes.items():
            if found := re.fullmatch(pattern, called):
                try:
                    self.answer(200, getattr(self, name)(*found.groups()))
                except tuple(_STATUS) as error:
                    status = _STATUS[type(error)]
                    self.answer(status, _error(type(error).__name__, status, str(error)))
                except Exception as error:
                    self.answer(500, _error(type(error).__name__, 500, str(error)))
                return
        self.answer(404, _error("NoSuchPathException", 404, called))

    do_GET = do_POST = do_DELETE = handle_request  # noqa: N815

    def answer(self, status: int, content: Any) -> None:
        encoded = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def log_message(self, *_: Any) -> None:
        pass


def _answer(location: str | None, metadata: Any) -> Any:
    return {"metadata-location": location, "metadata": json.loads(metadata.model_dump_json())}


def _error(kind: str, code: int, message: str) -> Any:
    return {"error": {"type": kind, "code": code, "message": message}}


@contextmanager
def rest_catalog(catalog: Catalog, token: str) -> Iterator[RestCatalogServer]:
    server = RestCatalogServer(catalog, token)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
