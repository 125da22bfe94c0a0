"""Detects other protocols by the first bytes that a client sends, for the log line about an invalid frame."""

from typing import Final

_BEGINNINGS: Final = {
    b"\x16\x03": "TLS, which this listener does not accept",
    b"SSH-": "SSH",
    **dict.fromkeys((b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI "), "HTTP"),
    **dict.fromkeys((b"ruok", b"stat", b"srvr", b"mntr", b"conf", b"envi", b"isro", b"dump"), "a ZooKeeper command"),
}


def describe_protocol(first: bytes) -> str:
    """Return ` (it looks like …)` if the first bytes of a connection are another protocol's, else an empty string."""
    for beginning, protocol in _BEGINNINGS.items():
        if first.startswith(beginning):
            return f" (it looks like {protocol})"
    return ""
