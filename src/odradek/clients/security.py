"""A client's security from its settings: TLS, and the login of its SASL mechanism."""

import json
from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import isawaitable
from typing import Any, Final

from odradek.clients.settings import ClientSettings
from odradek.config.security import MECHANISMS
from odradek.model import AuthenticationError, ConfigurationError, OdradekError, SecurityProtocol, UnavailableError
from odradek.runtime import Runtime
from odradek.runtime.http import HttpError, fetch
from odradek.security.sasl.exchange import SaslClient
from odradek.security.sasl.jaas import JaasLogin, parse_jaas
from odradek.security.sasl.oauthbearer import OauthBearerClient
from odradek.wire.client_authentication import NO_SECURITY, ClientSecurity, Login
from odradek.wire.client_security import client_tls, password_login

TokenProvider = Callable[[], Any]
"""Returns a bearer token as text, or an awaitable of one."""
_MARGIN: Final = 0.8
"""The part of a token's lifetime for which it is used for new connections."""
_USUAL_LIFETIME_S: Final = 60.0
_LATER: Final = (408, 429)
"""HTTP's codes below 500 that mean: try again later."""
_NOTHING: Final = JaasLogin(mechanisms=MECHANISMS, options={})


def client_security(settings: ClientSettings, runtime: Runtime) -> ClientSecurity:
    """Return the security of a client's connections. Raises `ConfigurationError` if keys are missing or contradict."""
    protocol = SecurityProtocol(settings.security_protocol)
    if protocol is SecurityProtocol.PLAINTEXT:
        _check_unused(settings)
        return NO_SECURITY
    login = _login(settings, runtime) if protocol.uses_sasl else None
    return ClientSecurity(tls=client_tls(protocol, settings), login=login)


def _check_unused(settings: ClientSettings) -> None:
    for key in ("sasl_mechanism", "sasl_username", "sasl_jaas_config", "ssl_truststore_location"):
        if getattr(settings, key) is not None:
            raise ConfigurationError(
                f"{key.replace('_', '.')} has no effect while security.protocol is PLAINTEXT: set security.protocol to "
                "SSL, SASL_PLAINTEXT or SASL_SSL"
            )


def _login(settings: ClientSettings, runtime: Runtime) -> Login:
    jaas = _NOTHING if settings.sasl_jaas_config is None else parse_jaas(settings.sasl_jaas_config)
    mechanism = settings.sasl_mechanism or (jaas.mechanisms[0] if len(jaas.mechanisms) == 1 else None)
    if mechanism is None:
        raise ConfigurationError(f"SASL needs a mechanism: set sasl.mechanism to one of {', '.join(MECHANISMS)}")
    if mechanism not in jaas.mechanisms:
        raise ConfigurationError(
            f"sasl.mechanism is {mechanism}, and the login module of sasl.jaas.config is for "
            f"{' and '.join(jaas.mechanisms)}"
        )
    options = dict(jaas.options)
    if mechanism == "OAUTHBEARER":
        return _token_login(_token_provider(settings, options, runtime), runtime)
    if settings.sasl_username is not None:
        options["username"] = settings.sasl_username
    if settings.sasl_password is not None:
        options["password"] = settings.sasl_password
    return password_login(mechanism, options, runtime.entropy)


def _token_login(provider: TokenProvider, runtime: Runtime) -> Login:
    async def begin() -> SaslClient:
        try:
            token = await runtime.disk.submit(provider, background=True)  # it may wait for a network
            if isawaitable(token):
                token = await token
        except OdradekError:
            raise
        except OSError as error:
            raise UnavailableError(f"the token provider failed: {error}") from error
        except Exception as error:
            raise AuthenticationError(f"the token provider failed: {error!r}") from error
        if not isinstance(token, str) or not token:
            raise AuthenticationError(f"the token provider returned {type(token).__name__}, not the text of a token")
        return OauthBearerClient(token)

    return begin


def _token_provider(settings: ClientSettings, options: Mapping[str, str], runtime: Runtime) -> TokenProvider:
    given = settings.sasl_oauthbearer_token_provider
    if callable(given):
        return given
    if given is not None:
        return _imported(given)
    url = settings.sasl_oauthbearer_token_endpoint_url
    if url is None:
        raise ConfigurationError(
            "OAUTHBEARER needs a token: set sasl.oauthbearer.token.provider to a function that returns one, or "
            "sasl.oauthbearer.token.endpoint.url to the URL of a token endpoint or of a file that has one"
        )
    if url.startswith("file:"):
        return lambda: _token_of_file(url)
    client_id = settings.sasl_oauthbearer_client_credentials_client_id or options.get("clientId")
    secret = settings.sasl_oauthbearer_client_credentials_client_secret or options.get("clientSecret")
    if client_id is None or secret is None:
        raise ConfigurationError(
            "the token endpoint needs credentials: set sasl.oauthbearer.client.credentials.client.id and "
            "sasl_oauthbearer_client_credentials_client_secret"
        )
    scope = settings.sasl_oauthbearer_scope or options.get("scope")
    return TokenEndpoint(url, client_id, secret, scope, settings, runtime).token


def _token_of_file(url: str) -> str:
    try:
        return fetch(url, timeout_s=0).decode().strip()
    except HttpError as error:
        raise UnavailableError(f"the token in {url} can't be read: {error}") from None


def _imported(path: str) -> TokenProvider:
    module, _, name = path.replace(":", ".").rpartition(".")
    try:
        provider = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(f"sasl.oauthbearer.token.provider: can't import {path}: {error}") from None
    if not callable(provider):
        raise ConfigurationError(f"sasl.oauthbearer.token.provider: {path} is not a function")
    found: TokenProvider = provider
    return found


class TokenEndpoint:
    """Tokens of an OAuth endpoint, by the client credentials grant (RFC 6749, 4.4). A token is used while it is new."""

    def __init__(
        self, url: str, client_id: str, secret: str, scope: str | None, settings: ClientSettings, runtime: Runtime
    ) -> None:
        self._url = url
        self._credentials = client_id, secret
        self._form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
        self._tls = client_tls(SecurityProtocol.SSL, settings) if url.startswith("https:") else None
        self._timeout_s = settings.socket_connection_setup_timeout_ms / 1000
        self._runtime = runtime
        self._token = ""
        self._until_s = 0.0

    async def token(self) -> str:
        """Return a token. Raises `UnavailableError` if the endpoint is away, `AuthenticationError` if it refuses."""
        now_s = self._runtime.clock.monotonic()
        if now_s < self._until_s:
            return self._token
        try:
            answer = await self._runtime.disk.submit(self._request, background=True)
            content = json.loads(answer)
            token, lifetime_s = content["access_token"], float(content.get("expires_in", _USUAL_LIFETIME_S))
            if not isinstance(token, str):
                raise TypeError
        except HttpError as error:
            if error.status is not None and error.status < 500 and error.status not in _LATER:
                raise AuthenticationError(f"the token endpoint {self._url} refuses the client: {error}") from None
            raise UnavailableError(f"the token endpoint {self._url} does not answer: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            raise AuthenticationError(f"the answer of the token endpoint {self._url} has no access_token") from None
        self._token, self._until_s = token, now_s + lifetime_s * _MARGIN
        return self._token

    def _request(self) -> bytes:
        return fetch(
            self._url, timeout_s=self._timeout_s, form=self._form, credentials=self._credentials, tls=self._tls
        )
