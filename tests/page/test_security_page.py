"""The views of security, of brokers with and without an authorizer."""

from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlencode

import pytest
import pytest_asyncio

from odradek.page.settings import PageSettings
from odradek.security.quotas import QuotaEntity
from odradek.testing import Cluster
from tests.page.visitor import Visitor, visiting

pytestmark = pytest.mark.asyncio
ACL = {"principal": "User:carol", "operation": "Read", "type": "Topic", "name": "carol-"}


@pytest.fixture(scope="module")
def acl_kafka() -> Iterator[Cluster]:
    """A broker with an authorizer, whose user alice has no ACLs."""
    with Cluster(security="sasl_plaintext", users={"alice": "alice-secret"}, acls=()) as cluster:
        yield cluster


@pytest_asyncio.fixture
async def visitor(acl_kafka: Cluster) -> AsyncIterator[Visitor]:
    async with visiting(PageSettings(client=acl_kafka.settings())) as visitor:
        yield visitor


async def test_an_acl_is_added_decides_and_is_removed(visitor: Visitor) -> None:
    added = await visitor.post("/security/add-acl", ACL | {"prefixed": "1"})
    assert (added.status, added.headers["location"]) == (303, "/security")
    shown = (await visitor.get("/security?q=carol")).text
    assert "Added: Allow User:carol Read from * on Topic:PREFIXED:carol-." in shown
    assert "1 ACL<" in shown
    asked = "/security/explain?principal=User:carol&type=Topic&operation="
    assert (
        "Allowed:</strong>\nan ACL allows it: Allow User:carol" in (await visitor.get(f"{asked}Read&name=carol-1")).text
    )
    assert "Denied:</strong>" in (await visitor.get(f"{asked}Write&name=carol-1")).text
    assert (await visitor.get(f"{asked}Fly&name=carol-1")).status == 400
    address = shown.partition('href="/security/remove-acl?')[2].partition('"')[0].replace("&amp;", "&")
    address = f"/security/remove-acl?{address}"
    kept = await visitor.post(address, {"typed": "User:caro"})
    assert (kept.status, "nothing is removed" in kept.text) == (400, True)
    assert (await visitor.post(address, {"typed": "User:carol"})).status == 303
    shown = (await visitor.get("/security?q=carol")).text
    assert "Removed: Allow User:carol" in shown
    assert "No ACL matches" in shown


async def test_a_user_is_added_and_deleted_and_no_page_has_the_password(visitor: Visitor) -> None:
    form = {"user": "dora", "password": "dora-secret", "again": "dora-secrets", "mechanism": ""}
    refused = await visitor.post("/security/add-user", form)
    assert (refused.status, "the two passwords differ" in refused.text) == (400, True)
    added = await visitor.post("/security/add-user", form | {"again": "dora-secret"})
    assert (added.status, added.headers["location"]) == (303, "/security/users")
    shown = await visitor.get("/security/users?q=dora")
    assert "User dora authenticates by SCRAM-SHA-256 and SCRAM-SHA-512." in shown.text
    for answer in (refused, added, shown):
        assert "dora-secret" not in answer.text + str(answer.headers)
    assert (await visitor.post("/security/remove-user?user=dora", {"typed": "x"})).status == 400
    assert (await visitor.post("/security/remove-user?user=dora", {"typed": "dora"})).status == 303
    assert "No user matches" in (await visitor.get("/security/users?q=dora")).text


@pytest.mark.parametrize("name", ["a/b", "..", "x?&#%", "long" * 70])
async def test_a_user_of_any_name_is_deleted_by_the_link_of_the_list(visitor: Visitor, name: str) -> None:
    form = {"user": name, "password": "secret", "again": "secret", "mechanism": "SCRAM-SHA-512"}
    assert (await visitor.post("/security/add-user", form)).status == 303
    shown = (await visitor.get(f"/security/users?{urlencode({'q': name})}")).text
    address = "/security/remove-user?" + shown.partition('href="/security/remove-user?')[2].partition('"')[0]
    assert (await visitor.post(address, {"typed": name})).status == 303
    assert "No user matches" in (await visitor.get(f"/security/users?{urlencode({'q': name})}")).text


async def test_a_quota_is_set_and_removed(visitor: Visitor) -> None:
    form = {"user-default": "1", "client-id": "erna", "key": "producer_byte_rate", "value": "1500"}
    assert (await visitor.post("/security/set-quota", form)).status == 303
    shown = (await visitor.get("/security/quotas?q=erna")).text
    assert "user &lt;default&gt;, client-id erna" in shown
    assert "1,500" in shown
    address = "/security/remove-quota?user-default=1&client-id=erna&key=producer_byte_rate"
    assert address.replace("&", "&amp;") in shown
    assert "nothing is removed" in (await visitor.post(address, {"typed": "erna"})).text
    assert (await visitor.post(address, {"typed": "<default>, erna"})).status == 303
    assert "No quota matches" in (await visitor.get("/security/quotas?q=erna")).text


async def test_a_user_may_be_named_like_the_default(visitor: Visitor) -> None:
    form = {"user": "<default>", "key": "consumer_byte_rate", "value": "7"}
    assert (await visitor.post("/security/set-quota", form)).status == 303
    quotas = await (await visitor.app.sessions._shared.admin()).describe_client_quotas()
    assert quotas[QuotaEntity(user="<default>")] == {"consumer_byte_rate": 7.0}
    address = f"/security/remove-quota?{urlencode({'user': '<default>', 'key': 'consumer_byte_rate'})}"
    assert (await visitor.post(address, {"typed": "<default>"})).status == 303


@pytest.mark.parametrize(
    ("address", "form", "words"),
    [
        ("/security/add-acl", ACL | {"principal": "carol"}, "is not a principal"),
        ("/security/add-acl", ACL | {"name": ""}, "is not TYPE:NAME"),
        ("/security/add-user", {"user": " ", "password": "x"}, "a user has a name"),
        (
            "/security/add-user",
            {"user": "u", "password": "x", "again": "x", "mechanism": "PLAIN"},
            "is not one of SCRAM-SHA-256, SCRAM-SHA-512",
        ),
        ("/security/set-quota", {"key": "producer_byte_rate", "value": "1"}, "a quota is for a user"),
        ("/security/set-quota", {"user": "u", "key": "producer_byte_rate", "value": "much"}, "a quota is a number"),
        ("/security/set-quota", {"user": "u", "key": "nonsense", "value": "1"}, "nonsense"),
        (
            "/security/set-quota",
            {"user": "u", "user-default": "1", "value": "1"},
            "or for all without one of their own",
        ),
    ],
)
async def test_a_wrong_form_is_shown_again_with_the_reason(
    visitor: Visitor, address: str, form: dict[str, str], words: str
) -> None:
    answer = await visitor.post(address, form)
    assert answer.status == 400
    assert words in answer.text.partition('<p class="notice severe">')[2].partition("</p>")[0]
    assert f'action="{address}"' in answer.text


async def test_brokers_without_an_authorizer_are_a_sentence(kafka: Cluster) -> None:
    async with visiting(PageSettings(client={"bootstrap_servers": kafka.bootstrap_servers})) as visitor:
        for address in ("/security", "/security/explain?principal=User:a&operation=Read&type=Topic&name=t"):
            answer = await visitor.get(address)
            assert (answer.status, "The brokers have no authorizer" in answer.text) == (200, True)


async def test_a_user_without_rights_gets_a_sentence(acl_kafka: Cluster) -> None:
    async with visiting(PageSettings(client=acl_kafka.settings("alice"))) as visitor:
        for address in ("/security", "/security/users", "/security/quotas"):
            answer = await visitor.get(address)
            assert (answer.status, "who needs the operation DESCRIBE" in answer.text) == (200, True), address


async def test_a_viewer_changes_nothing(acl_kafka: Cluster) -> None:
    settings = PageSettings(client=acl_kafka.settings(), may_change=False)
    async with visiting(settings) as visitor:
        assert "data-dialog" not in (await visitor.get("/security")).text
        for name in ("add-acl", "remove-acl", "add-user", "remove-user", "set-quota", "remove-quota"):
            assert (await visitor.get(f"/security/{name}")).status == 403
            assert (await visitor.post(f"/security/{name}", ACL)).status == 403
