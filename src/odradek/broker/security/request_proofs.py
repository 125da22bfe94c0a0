"""Proofs that a request comes from a broker of the cluster: from a reader of the tree's `/cluster/secret`.

```
proof   BLAKE2b, 16 bytes, keyed by the secret, over api_key int16 | api_version int16 | correlation_id int32 | body
```
A proof is a tagged field of the request's header (`headers.PROOF_TAG`), which other releases and Kafka's tools ignore.
In a cluster that began with an earlier release nothing is refused until an operator requires proofs.
"""

import hashlib
import hmac
import logging
import struct
from collections.abc import Callable, Sequence
from typing import Final

from odradek.broker.apis import Trait, with_trait
from odradek.metadata.image import ClusterImage
from odradek.model import Buffer
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.headers import PROOF_BYTES, RequestHeader
from odradek.runtime.rate_limited_log import RateLimitedLog
from odradek.security import kafka_name

_PREFIX: Final = struct.Struct(">hhi")
_PROVED: Final = with_trait(Trait.PROVED_BY_BROKERS)


class RequestProofs:
    """Makes and checks proofs with the secret of the broker's image. Brokers connect to `listener`."""

    def __init__(self, image: Callable[[], ClusterImage], listener: str) -> None:
        self._image = image
        self._listener = listener
        self._refusals = RateLimitedLog(logging.getLogger("odradek.authorizer"))

    def make(self, api_key: int, version: int, correlation_id: int, body: Sequence[Buffer]) -> bytes:
        """Return the proof of a request to another broker; empty bytes for an API that needs none."""
        secret = self._image().secret.secret
        return _proof(secret, api_key, version, correlation_id, body) if secret and api_key in _PROVED else b""

    def admits(self, header: RequestHeader, body: Buffer, *, listener: str, host: str) -> bool:
        """Return whether a request of a broker has the proof and came through the right listener; log if not."""
        secret = self._image().secret
        if not secret.requires_proofs:
            return True
        made = _proof(secret.secret, header.api_key, header.api_version, header.correlation_id, (body,))
        if listener == self._listener and hmac.compare_digest(made, header.proof):
            return True
        self._refusals.log(
            header.api_key,
            logging.WARNING,
            "Refused %s from %s through the listener %s: only brokers of this cluster send it, through the listener %s "
            "and with a proof; a broker of an earlier release registers and may lead, but no other replica is in sync "
            "with it: stop it, and start it with this release",
            kafka_name(ApiKey(header.api_key)),
            host,
            listener,
            self._listener,
            owner=host,
        )
        return False


def _proof(secret: bytes, api_key: int, version: int, correlation_id: int, body: Sequence[Buffer]) -> bytes:
    proof = hashlib.blake2b(_PREFIX.pack(api_key, version, correlation_id), digest_size=PROOF_BYTES, key=secret)
    for part in body:
        proof.update(part)
    return proof.digest()
