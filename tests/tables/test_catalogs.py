"""Tables in other catalogs, SQL, Glue and REST, with files in S3. That of Hive needs a metastore of Java."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pyarrow as pa
import pytest
from moto.glue.responses import GlueResponse
from moto.server import ThreadedMotoServer

from odradek.model import AuthenticationError, PreconditionError, StorageError
from odradek.tables.contents import check_files, describe_table
from odradek.tables.housekeeping import clean, compact, expire
from odradek.tables.location import TableLocation, existing_table, load_table, open_catalog, parse_location
from odradek.tables.table import commit_batch, prepared_table
from tests.tables.conftest import COLUMNS, Scene
from tests.tables.rest_catalog import RestCatalogServer, rest_catalog

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # SQLAlchemy's pools keep their connections
    pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow"),
]
SECRET = "geheim-7e2a"
KEY = {"access-key-id": "me", "secret-access-key": SECRET, "region": "us-east-1"}


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.stop()


def client(moto: str) -> Any:
    names = {"endpoint_url": moto, "aws_access_key_id": "me", "aws_secret_access_key": SECRET}
    return boto3.client("s3", region_name="us-east-1", **names)


@pytest.fixture
def s3(moto: str) -> dict[str, str]:
    """The properties of a warehouse in an empty bucket."""
    service = client(moto)
    for name in [each["Name"] for each in service.list_buckets()["Buckets"]]:
        for each in service.list_objects_v2(Bucket=name).get("Contents", []):
            service.delete_object(Bucket=name, Key=each["Key"])
        service.delete_bucket(Bucket=name)
    service.create_bucket(Bucket="lake")
    return {"warehouse": "s3://lake/w", "s3.endpoint": moto} | {f"s3.{key}": value for key, value in KEY.items()}


@pytest.fixture
def rest(s3: dict[str, str], tmp_path: Path) -> Iterator[RestCatalogServer]:
    from pyiceberg.catalog import load_catalog

    with rest_catalog(load_catalog("c", type="sql", uri=f"sqlite:///{tmp_path}/c.db", **s3), SECRET) as server:
        yield server


def located(properties: dict[str, str]) -> TableLocation:
    return parse_location({"table": "sales.orders"} | {f"catalog.{key}": value for key, value in properties.items()})


every_catalog = pytest.mark.parametrize("catalog", ["sql", "glue", "rest"])


@pytest.fixture
def catalog() -> str:
    return "rest"


@pytest.fixture
def scene(
    request: pytest.FixtureRequest,
    catalog: str,
    s3: dict[str, str],
    moto: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Scene:
    found = Scene(tmp_path)
    if catalog == "sql":
        found.location = located({"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db"} | s3)
    if catalog == "glue":
        keys = {f"glue.{key}": value for key, value in KEY.items()}
        found.location = located({"type": "glue", "glue.endpoint": moto} | keys | s3)
        monkeypatch.setattr(GlueResponse, "update_table", update_of_a_version)
        glue: Any = open_catalog(found.location, create=False)
        for table in [each for name in glue.list_namespaces() for each in glue.list_tables(name)]:
            glue.drop_table(table)
    if catalog == "rest":
        server = request.getfixturevalue("rest")
        found.location = located({"type": "rest", "uri": server.uri, "token": SECRET} | s3)
    return found


_update = GlueResponse.update_table


def update_of_a_version(self: GlueResponse) -> Any:
    """Refuse a table's update of an old version, as Glue does and moto does not."""
    from moto.glue.exceptions import GlueClientError

    table = self.glue_backend.get_table(self.parameters["DatabaseName"], self.parameters["TableInput"]["Name"])
    if self.parameters["VersionId"] != table.as_dict()["VersionId"]:
        raise GlueClientError("ConcurrentModificationException", "Update table failed due to concurrent modifications.")
    return _update(self)


@pytest.fixture
def on_commit(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Callable[[], Any]], Any]], None]:
    """Give the next commit of the catalog to a hook."""
    kind = type(open_catalog(scene.location, create=False))
    original = kind.commit_table

    def install(hook: Callable[[Callable[[], Any]], Any]) -> None:
        def commit(self: Any, *arguments: Any) -> Any:
            monkeypatch.setattr(kind, "commit_table", original)
            return hook(lambda: original(self, *arguments))

        monkeypatch.setattr(kind, "commit_table", commit)

    return install


@every_catalog
def test_each_batch_is_in_the_table_once(scene: Scene) -> None:
    for number in range(3):
        scene.write(number)
    scene.write(2)
    assert scene.offsets() == list(range(9))
    assert check_files(scene.location) == 3
    described = describe_table(scene.location)
    assert (described.rows, described.snapshots, described.pipelines[0].batch) == (9, 3, 2)
    assert described.metadata.startswith("s3://lake/w/")


@pytest.mark.parametrize("is_applied", [True, False])
def test_a_commit_whose_answer_is_lost_is_in_the_table_once(scene: Scene, on_commit: Any, is_applied: bool) -> None:
    late: list[Any] = []

    def lose(commit: Any) -> None:
        late.append(commit() if is_applied else commit)
        raise TimeoutError("the catalog did not answer")

    scene.write(0)
    on_commit(lose)
    scene.write(1)
    if not is_applied:
        from pyiceberg.exceptions import CommitFailedException

        with pytest.raises(CommitFailedException):
            late[0]()
    assert scene.offsets() == list(range(6))


def test_foreign_appends_and_a_commit_on_top_of_them(scene: Scene, on_commit: Any) -> None:
    def after_another(commit: Any) -> Any:
        scene.table.append(pa.Table.from_pylist([{"partition": 9, "offset": 100, "key": "x"}], COLUMNS))
        return commit()

    scene.write(0)
    on_commit(after_another)
    scene.write(1)
    assert scene.offsets() == [*range(6), 100]


@every_catalog
def test_of_two_committers_one_is_done_by_the_other(scene: Scene) -> None:
    scene.write(0)
    planned, files = scene.planned(), [scene.files(1), scene.files(1)]
    with ThreadPoolExecutor(2) as pool:
        found = set(pool.map(lambda each: commit_batch(scene.location, scene.batch(1), planned, [each]), files))
    assert len(found) == 1
    assert scene.offsets() == list(range(6))


@pytest.mark.parametrize("catalog", ["sql", "rest"])
def test_columns_are_added_and_old_snapshots_and_small_files_go(scene: Scene) -> None:
    for number in range(3):
        scene.write(number)
    prepared_table(scene.location, COLUMNS.append(pa.field("more", pa.int64())))
    assert compact(scene.location).after == 1
    assert expire(scene.location, keep=1, before_ms=1 << 60).snapshots == 2
    scene.write(3)
    assert scene.offsets() == list(range(12))
    assert check_files(scene.location) == 2
    with pytest.raises(PreconditionError, match=r"the files of sales\.orders are not in a local directory"):
        clean(scene.location, before_ms=1 << 60)


def test_a_table_that_was_dropped_meanwhile_gets_nothing(scene: Scene) -> None:
    scene.write(0)
    planned, files = scene.planned(), scene.files(1)
    scene.table.catalog.drop_table("sales.orders")
    with pytest.raises(PreconditionError, match="was dropped while batch 1 of p was written"):
        commit_batch(scene.location, scene.batch(1), planned, [files])


@pytest.mark.parametrize("catalog", ["sql", "rest"])
def test_a_table_that_has_lost_its_files_says_so(scene: Scene, moto: str) -> None:
    scene.write(0)
    client(moto).delete_object(Bucket="lake", Key=scene.table.metadata_location.removeprefix("s3://lake/"))
    with pytest.raises(StorageError, match="has lost a file, or was moved"):
        check_files(scene.location)


def test_a_commit_that_the_rest_catalog_answers_with_an_error_is_looked_up(
    rest: RestCatalogServer, s3: dict[str, str], tmp_path: Path
) -> None:
    scene = Scene(tmp_path)
    scene.location = located({"type": "rest", "uri": rest.uri, "token": SECRET} | s3)
    scene.write(0)

    def fail() -> None:
        rest.fault = lambda: None
        raise RuntimeError("the server has a fault after the commit")

    rest.fault = fail
    scene.write(1)
    assert scene.offsets() == list(range(6))


@pytest.mark.parametrize(
    "given",
    [{"token": f"wrong-{SECRET}"}, {"credential": f"me:{SECRET}", "oauth2-server-uri": "{uri}/v1/oauth/tokens"}],
)
def test_a_catalog_that_refuses_a_token_says_so_without_it(rest: RestCatalogServer, given: dict[str, str]) -> None:
    place = located({"type": "rest", "uri": rest.uri} | {k: v.replace("{uri}", rest.uri) for k, v in given.items()})
    with pytest.raises(AuthenticationError, match=r"refuses access to sales\.orders") as refusal:
        load_table(place)
    assert SECRET not in str(refusal.value)
    with pytest.raises(AuthenticationError):
        existing_table(place)
