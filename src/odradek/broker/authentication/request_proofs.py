"""Proofs that a request comes from a broker of the cluster: from a reader of the tree's `/cluster/secret`.

```
proof   BLAKE2b, 16 bytes, keyed by the secret, over api_key int16 | api_version int16 | correlation_id int32 | body
```
A proof is a tagged field of the request's header (`headers.PROOF_TAG`), which other releases and Kafka's tools ignore.
Without a secret that is required, as while brokers of an earlier release are in the cluster, nothing is refused.
"""

import hashlib
import hmac
import struct
from collections.abc import Callable, Sequence
from typing import Final

from odradek.metadata.image import ClusterImage
from odradek.model import Buffer
from odradek.protocol.api import BETWEEN_BROKERS, ApiKey
from odradek.protocol.messages.headers import PROOF_BYTES, RequestHeader

_PREFIX: Final = struct.Struct(">hhi")
_PROVEN: Final = BETWEEN_BROKERS | {ApiKey.FETCH, ApiKey.ADD_PARTITIONS_TO_TXN}
"""The APIs that brokers call, or clients with other fields or versions."""


class RequestProofs:
    """Makes and checks proofs with the secret of the broker's image."""

    def __init__(self, image: Callable[[], ClusterImage]) -> None:
        self._image = image

    def make(self, api_key: int, version: int, correlation_id: int, body: Sequence[Buffer]) -> bytes:
        """Return the proof of a request to another broker; empty bytes for an API that needs none."""
        secret = self._image().secret.secret
        return _proof(secret, api_key, version, correlation_id, body) if secret and api_key in _PROVEN else b""

    def are_valid(self, header: RequestHeader, frame: memoryview) -> bool:
        """Return whether the request has this cluster's proof, or none is required."""
        secret = self._image().secret
        if not secret.requires_proofs:
            return True
        body = (frame[header.body_offset :],)
        made = _proof(secret.secret, header.api_key, header.api_version, header.correlation_id, body)
        return hmac.compare_digest(made, header.proof)


def _proof(secret: bytes, api_key: int, version: int, correlation_id: int, body: Sequence[Buffer]) -> bytes:
    proof = hashlib.blake2b(_PREFIX.pack(api_key, version, correlation_id), digest_size=PROOF_BYTES, key=secret)
    for part in body:
        proof.update(part)
    return proof.digest()
