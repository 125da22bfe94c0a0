"""Functions for `sasl.oauthbearer.token.provider`: tokens of Amazon MSK, Azure Event Hubs and Google's Kafka.

    Producer(
        "boot-….kafka-serverless.eu-west-1.amazonaws.com:9098",
        security_protocol="SASL_SSL",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauthbearer_token_provider=amazon_msk,
    )

In properties files and Spark options the function is given by its path: `examples.token_providers:amazon_msk`, or
that of your own copy. Each function uses its service's package, which finds the identity where the service's tools do.
"""

import base64
import json
import os
import time
from datetime import UTC


def amazon_msk() -> str:
    """Return a token of IAM for the region `AWS_REGION`. Needs `pip install aws-msk-iam-sasl-signer-python`."""
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider  # type: ignore[import-not-found]

    token, _expires_ms = MSKAuthTokenProvider.generate_auth_token(os.environ["AWS_REGION"])
    return str(token)


def azure_event_hubs() -> str:
    """Return a token of Entra ID for the namespace `EVENT_HUBS_NAMESPACE`. Needs `pip install azure-identity`."""
    from azure.identity import DefaultAzureCredential  # type: ignore[import-not-found]

    with DefaultAzureCredential() as credential:
        scope = f"https://{os.environ['EVENT_HUBS_NAMESPACE']}.servicebus.windows.net/.default"
        return str(credential.get_token(scope).token)


def google_managed_kafka() -> str:
    """Return a token of the application's default credentials. Needs `pip install google-auth[urllib3]`.

    The service expects the access token in the place of a JWT's signature.
    """
    import google.auth  # type: ignore[import-untyped]
    import google.auth.transport.urllib3  # type: ignore[import-untyped]
    import urllib3

    credentials, _project = google.auth.default(scopes=["https://www.googleapis.com/auth/cloud-platform"])
    credentials.refresh(google.auth.transport.urllib3.Request(urllib3.PoolManager()))
    claims = {
        "iss": "Google",
        "sub": credentials.service_account_email,
        "iat": time.time(),
        "exp": credentials.expiry.replace(tzinfo=UTC).timestamp(),
    }
    header = {"typ": "JWT", "alg": "GOOG_OAUTH2_TOKEN"}
    return ".".join(map(_base64, (json.dumps(header), json.dumps(claims), credentials.token)))


def _base64(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
