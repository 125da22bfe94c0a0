"""Sessions with a real ZooKeeper by TLS, with a login, and the ACLs of nodes."""

import asyncio
import itertools
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from kazoo.client import KazooClient

from odradek.config.zookeeper import ZookeeperKeys
from odradek.metadata.paths import BROKER_CONFIGS, CONSUMERS, TOPICS, USER_CONFIGS, user_config
from odradek.metadata.store import NoNode
from odradek.model import AuthenticationError, ConfigurationError, StorageError
from odradek.runtime import system_runtime
from odradek.runtime.certificates import CertificateAuthority
from odradek.stores import open_store
from odradek.testing.servers.zookeeper import ZookeeperServer

pytestmark = [pytest.mark.asyncio, pytest.mark.needs("zookeeper")]
_chroots = itertools.count()
BROKER = {"zookeeper_digest_user": "broker", "zookeeper_digest_password": "hidden-word"}
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    return CertificateAuthority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def secured(authority: CertificateAuthority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZookeeperServer]:
    server = ZookeeperServer(tmp_path_factory.mktemp("secured"))
    server.use_tls(authority.issue("zookeeper"), authority.certificate, client_auth="need")
    with server:
        yield server


@pytest_asyncio.fixture
async def begin(zookeeper: ZookeeperServer) -> AsyncIterator[Open]:
    """Sessions with a tree of its own, with these keys."""
    opened: list[Any] = []
    chroot = f"/secured/{next(_chroots)}"

    def make(address: str = "", **keys: Any) -> Any:
        url = f"zookeeper://{address or zookeeper.address}{chroot}"
        opened.append(open_store(url, system_runtime(), session_timeout_ms=20_000, zookeeper=ZookeeperKeys(**keys)))
        return opened[-1]

    make.chroot = chroot  # type: ignore[attr-defined]
    yield make
    for store in opened:
        await store.close()


async def secured_tree(begin: Open, *, zookeeper_set_acl: bool = True) -> Any:
    store = begin(**BROKER, zookeeper_set_acl=zookeeper_set_acl)
    for path in ("/brokers", TOPICS, CONSUMERS, "/config", BROKER_CONFIGS, USER_CONFIGS, user_config("alice")):
        await store.create(path, b"data")
    return store


async def test_the_login_that_has_created_a_node_uses_it_from_another_session(begin: Open) -> None:
    await secured_tree(begin)
    other = begin(**BROKER)
    assert await other.children(USER_CONFIGS) == ["alice"]
    await other.set(user_config("alice"), b"changed")
    await other.create(f"{CONSUMERS}/group")
    assert (await other.get(user_config("alice"))).data == b"changed"


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({}, "denies a client without login {}{}: set zookeeper.digest.user and zookeeper.digest.password"),
        (BROKER | {"zookeeper_digest_password": "guess"}, "denies user 'broker' {}{}: check the login"),
    ],
    ids=["no login", "a wrong password"],
)
async def test_users_are_closed_to_others_and_the_rest_of_the_tree_can_only_be_read(
    begin: Open, keys: dict[str, str], said: str
) -> None:
    await secured_tree(begin)
    store = begin(**keys)
    assert (await store.get(TOPICS)).data == b"data"
    for work, path in (
        (store.get(user_config("alice")), user_config("alice")),
        (store.children(USER_CONFIGS), USER_CONFIGS),
        (store.create(f"{USER_CONFIGS}/eve"), f"{USER_CONFIGS}/eve"),
        (store.set(TOPICS, b"changed"), TOPICS),
        (store.create(f"{TOPICS}/flights"), f"{TOPICS}/flights"),
        (store.delete(user_config("alice")), user_config("alice")),
    ):
        with pytest.raises(StorageError) as denied:
            await work
        assert said.format(begin.chroot, path) in str(denied.value)  # type: ignore[attr-defined]
        assert "hidden-word" not in str(denied.value)
    await store.create(f"{CONSUMERS}/group")


ACLS = {
    "": {("digest", 31), ("world", 1)},
    TOPICS: {("digest", 31), ("world", 1)},
    "/config": {("digest", 31), ("world", 1)},
    BROKER_CONFIGS: {("digest", 31)},
    USER_CONFIGS: {("digest", 31)},
    user_config("alice"): {("digest", 31)},
    CONSUMERS: {("world", 31)},
}


def acls(begin: Open, zookeeper: ZookeeperServer) -> dict[str, set[tuple[str, int]]]:
    client = KazooClient(hosts=zookeeper.address, auth_data=[("digest", "broker:hidden-word")])
    client.start()
    try:
        found = {path: client.get_acls(f"{begin.chroot}{path}")[0] for path in ACLS}  # type: ignore[attr-defined]
    finally:
        client.stop()
        client.close()
    return {path: {(each.id.scheme, each.perms) for each in of_node} for path, of_node in found.items()}


async def test_the_acls_are_kafka_s(begin: Open, zookeeper: ZookeeperServer) -> None:
    await secured_tree(begin)
    assert acls(begin, zookeeper) == ACLS


async def test_a_command_gives_nodes_that_exist_their_acls_and_opens_them_again(
    begin: Open, zookeeper: ZookeeperServer, tmp_path: Path
) -> None:
    await secured_tree(begin, zookeeper_set_acl=False)
    eve = begin(zookeeper_digest_user="eve", zookeeper_digest_password="hers", zookeeper_set_acl=True)
    others = (f"{CONSUMERS}/hers", "/zookeeper", "/zookeeper/config")
    for path in others:
        await eve.create(path)
    file = tmp_path / "server.properties"

    async def odradek(*options: str, login: str = "broker", set_acl: bool = True) -> str:
        keys = f"zookeeper.digest.user={login}\nzookeeper.digest.password=hidden-word\nzookeeper.set.acl={set_acl}\n"
        file.write_text(keys.lower())
        url = f"zookeeper://{zookeeper.address}{begin.chroot}"  # type: ignore[attr-defined]
        command = [
            "-m",
            "odradek",
            "metadata",
            "set-acls",
            "--metadata",
            url,
            "--zookeeper-config",
            str(file),
            *options,
        ]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        return (await process.communicate())[0].decode()

    everyones = {path: {("world", 31)} for path in ACLS}
    assert acls(begin, zookeeper) == everyones
    assert "set zookeeper.set.acl=true" in await odradek(set_acl=False)
    assert acls(begin, zookeeper) == everyones
    assert await odradek() == "8 nodes have the brokers' ACLs\n"
    assert acls(begin, zookeeper) == ACLS
    assert "denies user 'mallory'" in await odradek("--open", login="mallory")
    assert acls(begin, zookeeper) == ACLS
    assert await odradek("--open", set_acl=False) == "8 nodes are open to everyone\n"
    assert acls(begin, zookeeper) == everyones
    for path in reversed(others):
        await eve.delete(path)


async def test_a_certificate_encrypts_the_session_and_is_a_login(
    begin: Open, secured: ZookeeperServer, authority: CertificateAuthority
) -> None:
    tls = {"zookeeper_ssl_client_enable": True, "zookeeper_ssl_truststore_location": str(authority.certificate)}
    own = str(authority.issue("broker"))
    store = begin(secured.secure_address, **tls, zookeeper_ssl_keystore_location=own, zookeeper_set_acl=True)
    await store.create("/config")
    await store.create(USER_CONFIGS, b"secret")
    other = str(authority.issue("somebody"))
    denied = begin(secured.secure_address, **tls, zookeeper_ssl_keystore_location=other)
    with pytest.raises(StorageError, match=f"denies the certificate in {other} {begin.chroot}{USER_CONFIGS}"):  # type: ignore[attr-defined]
        await denied.get(USER_CONFIGS)
    # A server may have a plain port, too: its clients have no certificate.
    plain = begin(secured.address)
    with pytest.raises(StorageError, match="denies a client without login"):
        await plain.get(USER_CONFIGS)


async def test_refused_tls_is_one_sentence_at_once(
    begin: Open, secured: ZookeeperServer, authority: CertificateAuthority, tmp_path: Path
) -> None:
    tls = {"zookeeper_ssl_client_enable": True, "zookeeper_ssl_truststore_location": str(authority.certificate)}
    stranger = CertificateAuthority(tmp_path)
    for keys, said in (
        (tls, f"ZooKeeper at {secured.secure_address} refuses the connection: .*CERTIFICATE.*; check zookeeper.ssl"),
        (tls | {"zookeeper_ssl_truststore_location": str(stranger.certificate)}, "unable to get local issuer"),
    ):
        store = begin(secured.secure_address, **keys)
        with pytest.raises(AuthenticationError, match=said):
            await store.get("/")
    assert stranger.certificate.exists()


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"zookeeper_set_acl": True}, "zookeeper.set.acl is true, and without a login"),
        ({"zookeeper_digest_user": "broker"}, "set both"),
        ({"zookeeper_digest_user": "a:b", "zookeeper_digest_password": "c"}, "can't have a colon"),
        ({"zookeeper_ssl_keystore_location": "x.pem"}, "no effect without zookeeper.ssl.client.enable=true"),
        (
            {"zookeeper_ssl_client_enable": True, "zookeeper_ssl_truststore_location": "/absent"},
            "zookeeper.ssl.truststore.location: can't read /absent",
        ),
    ],
)
async def test_keys_that_would_not_protect_are_refused(begin: Open, keys: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        begin(**keys)


async def test_a_tree_without_acls_stays_open(begin: Open) -> None:
    store = begin(**BROKER)
    await store.create("/a")
    other = begin()
    await other.delete("/a")
    with pytest.raises(NoNode):
        await other.delete("/a")
