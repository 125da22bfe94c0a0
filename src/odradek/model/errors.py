"""One tree of errors. Each says whose fault it is, whether to try again, and what to do.

`KafkaError` is what travels on the wire: a code of Kafka's and a sentence. The others never leave the process: the
command line prints them as one line.
"""

from typing import Final

from kio.schema.errors import ErrorCode

LONGEST_MESSAGE: Final = 1000
"""Letters of a `KafkaError`'s message: it names what a client sent, which may be any text, and goes back to it."""


class OdradekError(Exception):
    """The root. `str(error)` is one sentence for a person; `retriable` says whether the same call may succeed later."""

    retriable = False


class KafkaError(OdradekError):
    """An error that Kafka's protocol has a code for, on either side of the wire."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        if message is not None and len(message) > LONGEST_MESSAGE:
            message = message[: LONGEST_MESSAGE - 1] + "…"
        self.message = message
        super().__init__(message or f"{code.name.upper()}: {_sentence(code)}")

    @property
    def retriable(self) -> bool:  # type: ignore[override]
        """Whether Kafka's clients try such a request again."""
        return self.code.retriable


class ConfigurationError(OdradekError):
    """The caller's fault: a key that does not exist, or a value outside its range."""


class StorageError(OdradekError):
    """The disk's fault, or what is on it: a directory in use, a full disk, a file that is not ours."""


class UnavailableError(OdradekError):
    """Nobody's fault for now: no broker answered in time. Trying again may help."""

    retriable = True


def _sentence(code: ErrorCode) -> str:
    """Kafka's own explanation of a code, where it is known by heart; the name says the rest."""
    return code.name.replace("_", " ")


__all__ = ["ConfigurationError", "ErrorCode", "KafkaError", "OdradekError", "StorageError", "UnavailableError"]
