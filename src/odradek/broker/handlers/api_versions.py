"""ApiVersions: which APIs are there, in which versions.

Versions: 1 throttling, 3 flexible and with the client's software (KIP-511), 4 features that begin at 0 (KIP-1022).
Any other version gets version 0's answer with UNSUPPORTED_VERSION, which `dispatch` gives.
"""

import re
from typing import TYPE_CHECKING, Any, Final

from odradek.broker.apis import apis
from odradek.broker.context import RequestContext
from odradek.model import ErrorCode
from odradek.protocol.messages import optional

if TYPE_CHECKING:
    from odradek.broker.lifecycle import Broker

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""What a client's name and version may look like (KIP-511)."""


def handle(broker: "Broker", context: RequestContext, message: Any) -> dict[str, Any]:
    """INVALID_REQUEST if the client's software has a name or a version that can't be one."""
    del broker
    if context.api_version >= 3:
        name, version = optional(message, "client_software_name", ""), optional(message, "client_software_version", "")
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return {"error_code": ErrorCode.invalid_request, "api_keys": []}
        context.session.client_software = f"{name} {version}"
    return {
        "api_keys": [
            {"api_key": api.key, "min_version": api.advertised.start, "max_version": api.advertised.stop - 1}
            for api in apis().values()
            if api.advertised
        ]
    }
