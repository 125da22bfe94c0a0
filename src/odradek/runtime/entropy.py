"""The source of randomness: `random.Random`'s interface, so that tests can replace it by a seeded one."""

import base64
import random
import uuid

Entropy = random.Random
"""The type of every source of randomness; tests pass `random.Random(seed)`."""


def system_entropy() -> Entropy:
    """Return the operating system's randomness."""
    return random.SystemRandom()


def uuid4(entropy: Entropy) -> uuid.UUID:
    return uuid.UUID(bytes=entropy.randbytes(16), version=4)


def new_id(entropy: Entropy) -> uuid.UUID:
    """Return an id like Kafka's `Uuid.randomUuid`: its base64 text does not begin with a dash."""
    while True:
        found = uuid4(entropy)
        if not base64.urlsafe_b64encode(found.bytes).startswith(b"-"):
            return found
