"""Tokens of an OAuth endpoint: how they are requested and kept, and an endpoint that refuses or is away (X2)."""

import base64
import json
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from types import ModuleType, SimpleNamespace
from typing import Any, Final

import pytest

from examples import token_providers
from odradek.clients.security import client_security
from odradek.clients.settings import ClientSettings, make_settings
from odradek.model import AuthenticationError, UnavailableError
from odradek.simulation.world import World
from tests.world.scenes import in_world

TOKEN: Final = 200, json.dumps({"access_token": "abc", "expires_in": 100}).encode()


class Endpoint(HTTPServer):
    """A token endpoint. It gives the `answers`, the last one again and again, and counts its requests."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, bytes]] = [TOKEN]
        self.requests: list[tuple[str, str]] = []
        self.url = f"http://127.0.0.1:{self.server_port}/token"


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: Endpoint

    def do_POST(self) -> None:
        form = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.requests.append((self.headers["Authorization"], form))
        status, content = self.server.answers[0]
        if len(self.server.answers) > 1:
            del self.server.answers[0]
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(name="endpoint")
def fixture_endpoint() -> Iterator[Endpoint]:
    with Endpoint() as endpoint:
        serving = Thread(target=endpoint.serve_forever, args=(0.001,))
        serving.start()
        yield endpoint
        endpoint.shutdown()
        serving.join()


def settings(endpoint: Endpoint, **more: Any) -> dict[str, Any]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_token_endpoint_url": endpoint.url,
        "sasl_oauthbearer_client_credentials_client_id": "me",
        "sasl_oauthbearer_client_credentials_client_secret": "geheim/+",
        **more,
    }


async def token(world: World, login: Any) -> bytes:
    return (await login()).step(b"").split(b"Bearer ")[1].strip(b"\x01")  # type: ignore[no-any-return]


def login_of(world: World, endpoint: Endpoint, **more: Any) -> Any:
    made = make_settings(ClientSettings, settings(endpoint, **more))
    return client_security(made, world.simulation.runtime("client")).login


@in_world(started=False)
async def test_a_token_is_requested_with_the_clients_credentials_and_kept_for_most_of_its_lifetime(
    world: World, endpoint: Endpoint
) -> None:
    login = login_of(world, endpoint, sasl_oauthbearer_scope="kafka")
    assert await token(world, login) == b"abc"
    await world.pass_time(79)
    assert await token(world, login) == b"abc"
    assert endpoint.requests == [
        (f"Basic {base64.b64encode(b'me:geheim%2F%2B').decode()}", "grant_type=client_credentials&scope=kafka")
    ]
    endpoint.answers = [(200, json.dumps({"access_token": "def"}).encode())]
    await world.pass_time(2)
    assert await token(world, login) == b"def"


@pytest.mark.parametrize(
    ("answer", "error", "said"),
    [
        ((401, b"{}"), AuthenticationError, "refuses the client: 401 Unauthorized"),
        ((302, b""), AuthenticationError, "refuses the client: 302 Found"),
        ((400, b"geheim"), AuthenticationError, "refuses the client: 400 Bad Request"),
        ((429, b""), UnavailableError, "does not answer: 429 Too Many Requests"),
        ((500, b""), UnavailableError, "does not answer: 500 Internal Server Error"),
        ((200, b"<html>"), AuthenticationError, "has no access_token"),
        ((200, b"[]"), AuthenticationError, "has no access_token"),
        ((200, b'{"token": "abc"}'), AuthenticationError, "has no access_token"),
        ((200, b'{"access_token": 7}'), AuthenticationError, "has no access_token"),
        ((200, b'{"access_token": "abc", "expires_in": "soon"}'), AuthenticationError, "has no access_token"),
    ],
)
@in_world(started=False)
async def test_answers_without_a_token_say_whether_to_retry(
    world: World, endpoint: Endpoint, answer: tuple[int, bytes], error: type[Exception], said: str
) -> None:
    endpoint.answers = [answer]
    with pytest.raises(error, match=said) as raised:
        await token(world, login_of(world, endpoint))
    assert "geheim" not in str(raised.value)


def test_an_endpoint_that_is_away_is_unavailable(seed: int) -> None:
    endpoint = Endpoint()
    endpoint.server_close()

    async def scene(world: World) -> None:
        with pytest.raises(UnavailableError, match=r"the token endpoint .* does not answer: .*[Cc]onnection refused"):
            await token(world, login_of(world, endpoint))

    World(seed).run(scene)


def test_an_answer_that_is_not_http_is_unavailable(
    seed: int, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "do_POST", lambda handler: handler.wfile.write(b"not http\r\n\r\n"))

    async def scene(world: World) -> None:
        with pytest.raises(UnavailableError, match=r"the token endpoint .* does not answer"):
            await token(world, login_of(world, endpoint))

    World(seed).run(scene)


@in_world(started=False)
async def test_a_client_goes_on_when_the_endpoint_is_back(world: World, endpoint: Endpoint) -> None:
    """The broker offers no OAUTHBEARER, so the client ends with another error than the endpoint's."""
    endpoint.answers = [(500, b""), (503, b""), TOKEN]
    await world.start(
        listener_security_protocol_map="SASL:SASL_PLAINTEXT",
        listeners="SASL://broker:9092",
        sasl_enabled_mechanisms="PLAIN",
        listener_name_sasl_plain_sasl_jaas_config=(
            'org.apache.kafka.common.security.plain.PlainLoginModule required username="b" password="b" user_b="b";'
        ),
    )
    with pytest.raises(AuthenticationError, match="does not offer OAUTHBEARER, but PLAIN"):
        async with world.producer("producer", **settings(endpoint)):
            pass
    assert len(endpoint.requests) == 3


# ---- The example of token providers ----------------------------------------------------------------------------------

Patch = pytest.MonkeyPatch


def stand_in(patch: Patch, name: str, **contents: Any) -> None:
    """Let `import NAME` give a module with these contents, and its parents."""
    module = ModuleType(name)
    vars(module).update(contents)
    parent, _, last = name.rpartition(".")
    if parent and parent not in sys.modules:
        stand_in(patch, parent)
    if parent:
        patch.setattr(sys.modules[parent], last, module, raising=False)
    patch.setitem(sys.modules, name, module)


def test_amazons_token_is_that_of_the_signer(monkeypatch: Patch) -> None:
    signer = SimpleNamespace(generate_auth_token=lambda region: (f"token of {region}", 1))
    stand_in(monkeypatch, "aws_msk_iam_sasl_signer", MSKAuthTokenProvider=signer)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    assert token_providers.amazon_msk() == "token of eu-west-1"


def test_azures_token_is_for_the_namespace(monkeypatch: Patch) -> None:
    credential = SimpleNamespace(get_token=lambda scope: SimpleNamespace(token=f"token of {scope}"))
    stand_in(monkeypatch, "azure.identity", DefaultAzureCredential=lambda: nullcontext(credential))
    monkeypatch.setenv("EVENT_HUBS_NAMESPACE", "ours")
    assert token_providers.azure_event_hubs() == "token of https://ours.servicebus.windows.net/.default"


def test_googles_token_has_the_access_token_as_its_last_part(monkeypatch: Patch) -> None:
    credentials = SimpleNamespace(
        refresh=lambda request: None,
        service_account_email="me@example.com",
        expiry=datetime(2030, 1, 1),  # as the package has it
        token="geheim",
    )
    stand_in(monkeypatch, "google.auth", default=lambda scopes: (credentials, "project"))
    stand_in(monkeypatch, "google.auth.transport.urllib3", Request=lambda pool: None)
    stand_in(monkeypatch, "urllib3", PoolManager=lambda: None)
    parts = token_providers.google_managed_kafka().split(".")
    header, claims, token = (base64.urlsafe_b64decode(part + "===") for part in parts)
    assert json.loads(header)["alg"] == "GOOG_OAUTH2_TOKEN"
    assert (json.loads(claims)["sub"], json.loads(claims)["exp"]) == ("me@example.com", 1_893_456_000)
    assert token == b"geheim"
