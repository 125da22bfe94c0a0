"""Who speaks another protocol at a Kafka port, by the first bytes, so that the log can say what went wrong."""

from typing import Final

_BEGINNINGS: Final = {
    b"\x16\x03": "TLS, and this listener has none",
    b"SSH-": "SSH",
    **dict.fromkeys((b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"CONN", b"PRI "), "HTTP"),
    **dict.fromkeys(
        (b"ruok", b"stat", b"srvr", b"mntr", b"conf", b"envi", b"isro", b"dump"), "a question to ZooKeeper"
    ),
}


def describe_protocol(first: bytes) -> str:
    """` (it looks like …)` for the first bytes of a connection that are another protocol's, else nothing."""
    for beginning, protocol in _BEGINNINGS.items():
        if first.startswith(beginning):
            return f" (it looks like {protocol})"
    return ""
