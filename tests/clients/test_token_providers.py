"""The example of token providers, with stand-ins for the packages of the services: `examples/token_providers.py`."""

import base64
import json
import sys
from contextlib import nullcontext
from datetime import datetime
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from examples import token_providers

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
