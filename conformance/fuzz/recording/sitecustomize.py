"""Records the requests that clients send to `odradek serve`, where this folder is in PYTHONPATH (`client_requests.py`).

Each broker process writes a line of JSON for a request: client, its version, frame.
"""

import json
import os
import sys
from collections import Counter

_LONGEST = 2048
_MOST_OF_A_KIND = 20

if "serve" in sys.orig_argv and "ODRADEK_RECORDED" in os.environ:
    from odradek.broker.serving.dispatch import Dispatcher
    from odradek.protocol.api import ApiKey
    from odradek.protocol.messages.headers import decode_request_header
    from odradek.protocol.messages.message_codec import decode_request

    _clients: dict[int, tuple[str, str]] = {}
    _seen: Counter[object] = Counter()
    _serve = Dispatcher.serve
    _file = open(os.path.join(os.environ["ODRADEK_RECORDED"], f"{os.getpid()}.jsonl"), "a", buffering=1)  # noqa: SIM115

    def _record(connection: object, frame: bytes) -> None:
        header = decode_request_header(frame)
        if header.api_key == ApiKey.API_VERSIONS:
            _clients[id(connection)] = header.client_id or "", ""
            if header.api_version >= 3:
                message = decode_request(header.api_key, header.api_version, frame, header.body_offset)
                _clients[id(connection)] = message.client_software_name, message.client_software_version
        client = _clients.get(id(connection), (header.client_id or "", ""))
        kind = client, header.api_key, header.api_version
        _seen[kind] += 1
        if len(frame) <= _LONGEST and _seen[kind] <= _MOST_OF_A_KIND:
            _file.write(json.dumps([*client, frame.hex()]) + "\n")

    def _recording_serve(self, connection, frame, *, alone):  # type: ignore[no-untyped-def]
        try:
            _record(connection, bytes(frame))
        except Exception as error:
            print(f"not recorded: {error!r}", file=sys.stderr)
        return _serve(self, connection, frame, alone=alone)

    Dispatcher.serve = _recording_serve  # type: ignore[method-assign]
