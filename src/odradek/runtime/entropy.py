"""Where chance comes from: `random.Random`'s own interface, so that a seed can take its place."""

import base64
import random
import uuid

Entropy = random.Random
"""Everything random takes one of these; tests pass `random.Random(seed)`."""


def system_entropy() -> Entropy:
    """The operating system's randomness."""
    return random.SystemRandom()


def uuid4(entropy: Entropy) -> uuid.UUID:
    """A version 4 UUID out of `entropy`."""
    return uuid.UUID(bytes=entropy.randbytes(16), version=4)


def new_id(entropy: Entropy) -> uuid.UUID:
    """An id as Kafka makes them: its text, URL-safe base64, begins with no dash, so that a command can be given it."""
    while True:
        found = uuid4(entropy)
        if not base64.urlsafe_b64encode(found.bytes).startswith(b"-"):
            return found
