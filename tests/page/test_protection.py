"""The page refuses requests of other sites, and every answer forbids a browser to run anything foreign."""

import pytest

from odradek.clients.admin.descriptions import ClusterDescription
from odradek.clients.admin.health import ClusterState
from odradek.page.protection import MOST_FORM_BYTES
from odradek.page.settings import PageSettings
from odradek.page.view import Action, Done, Page, PageRequest, View
from odradek.page.views.cluster import ClusterPage, cluster_page
from tests.page.visitor import Answer, Visitor, visiting

pytestmark = pytest.mark.asyncio
_EMPTY = ClusterState(
    cluster=ClusterDescription(cluster_id="<b>", controller_id=0, brokers=()), topics=(), log_dirs={}, min_isr={}
)


async def _data(_asked: PageRequest) -> ClusterPage:
    return cluster_page(_EMPTY)


async def _act(asked: PageRequest) -> Done:
    return Done(address="/", message=f"renamed to {asked.form['name']}")


VIEW = View(
    title="Cluster",
    path="/",
    pages=(
        Page(path="/", template="cluster.html", data=_data, live=("state",)),
        Page(path="/operators", template="cluster.html", data=_data, live=("state",), operator=True),
    ),
    actions=(Action(path="/rename", act=_act),),
)


@pytest.mark.parametrize(
    "address", ["/", "/no-such-page", "/static/page.css", "/static/..%2fapp.py", "/rename", "/static/page.js"]
)
async def test_every_answer_has_a_strict_content_security_policy(address: str) -> None:
    async with visiting(views=(VIEW,)) as visitor:
        answer = await visitor.get(address)
    policy = dict(each.strip().partition(" ")[::2] for each in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["form-action"] == "'self'"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert "<script>" not in answer.text
    assert "style=" not in answer.text


async def test_values_are_escaped() -> None:
    async with visiting(views=(VIEW,)) as visitor:
        assert "&lt;b&gt;" in (await visitor.get("/")).text


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "", "127.0.0.1.evil.example:8080", "[::1"])
async def test_a_host_name_that_is_not_the_pages_is_refused(host: str) -> None:
    async with visiting(views=(VIEW,)) as visitor:
        visitor.host = host
        answer = await visitor.get("/")
    assert answer.status == 421
    assert "content-security-policy" in answer.headers


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:8080", "10.1.2.3:80", "Kafka.Example:8080"])
async def test_the_pages_own_names_and_ip_addresses_are_answered(host: str) -> None:
    async with visiting(PageSettings(host_names=("kafka.example",)), (VIEW,)) as visitor:
        visitor.host = host
        assert (await visitor.get("/")).status == 200


@pytest.mark.parametrize(
    "address",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/",
        "/../../etc",
    ],
)
async def test_no_path_leads_out_of_the_static_files(address: str) -> None:
    async with visiting(views=(VIEW,)) as visitor:
        assert (await visitor.get(address)).status == 404


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE", "CONNECT"])
async def test_other_methods_are_refused(method: str) -> None:
    async with visiting(views=(VIEW,)) as visitor:
        assert (await visitor.ask(method, "/")).status == 405


async def _posted(visitor: Visitor, token: str | None = None, **headers: str) -> Answer:
    return await visitor.post("/rename", {"name": "x"}, token, **headers)


async def test_a_form_of_the_page_acts_and_its_message_is_shown_once() -> None:
    async with visiting(views=(VIEW,)) as visitor:
        done = await _posted(visitor, origin="http://127.0.0.1:8080", sec_fetch_site="same-origin")
        assert (done.status, done.headers["location"]) == (303, "/")
        assert {"httponly", "samesite=strict"} <= set(done.headers["set-cookie"].lower().split("; "))
        assert "renamed to x" in (await visitor.get("/")).text
        assert "renamed to x" not in (await visitor.get("/")).text


@pytest.mark.parametrize("token", ["", "0" * 48, "ü"])
async def test_a_form_without_the_sessions_token_is_refused(token: str) -> None:
    async with visiting(views=(VIEW,)) as visitor:
        assert (await _posted(visitor, token)).status == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ],
)
async def test_a_form_that_another_site_posts_is_refused(headers: dict[str, str]) -> None:
    async with visiting(views=(VIEW,)) as visitor:
        assert (await _posted(visitor, **headers)).status == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("accept", ["text/html", "text/event-stream"])
async def test_another_site_may_open_a_page_by_a_link_and_not_load_it_otherwise(site: str, accept: str) -> None:
    async with visiting(views=(VIEW,)) as visitor:
        for mode, target in (("no-cors", "image"), ("no-cors", "script"), ("cors", "empty"), ("navigate", "iframe")):
            request = {"sec_fetch_site": site, "sec_fetch_mode": mode, "sec_fetch_dest": target, "accept": accept}
            assert (await visitor.get("/", **request)).status == 403
        link = {"sec_fetch_site": site, "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
        assert (await visitor.get("/", **link)).status == 200


@pytest.mark.parametrize(
    ("address", "limit"),
    [
        (f"/topics/{'a' * 250}", "249 characters"),
        (f"/topics/{'a' * 250}/messages", "249 characters"),
        (f"/group?id={'a' * 32_768}", "32767 bytes"),
    ],
)
async def test_a_name_that_no_topic_or_group_can_have_is_refused_without_a_request_to_a_broker(
    address: str, limit: str
) -> None:
    async with visiting() as visitor:
        answer = await visitor.get(address)
    assert answer.status == 414
    assert f"at most {limit}" in answer.text


async def test_the_id_of_a_group_may_be_longer_than_a_topic() -> None:
    async with visiting(views=(VIEW,)) as visitor:
        assert (await visitor.get(f"/?id={'a' * 32_767}")).status == 200


async def test_a_form_of_another_encoding_or_size_is_refused() -> None:
    async with visiting(views=(VIEW,)) as visitor:
        assert (await _posted(visitor, content_type="text/plain")).status == 415
        assert (await visitor.post("/rename", {"name": "x" * MOST_FORM_BYTES})).status == 413
        urlencoded = {"content_type": "application/x-www-form-urlencoded"}
        assert (await visitor.ask("POST", "/rename", b"name=%ff", urlencoded)).status == 400


async def test_a_viewer_may_not_post() -> None:
    async with visiting(PageSettings(may_change=False), (VIEW,)) as visitor:
        answer = await _posted(visitor)
        assert answer.status == 403
        assert "You are a viewer" in answer.text
        assert (await visitor.get("/")).status == 200


async def test_a_viewer_gets_neither_a_page_for_operators_nor_its_stream() -> None:
    async with visiting(PageSettings(may_change=False), (VIEW,)) as visitor:
        assert (await visitor.get("/operators")).status == 403
        assert (await visitor.get("/operators", accept="text/event-stream")).status == 403
    async with visiting(views=(VIEW,)) as visitor:
        assert (await visitor.get("/operators")).status == 200
