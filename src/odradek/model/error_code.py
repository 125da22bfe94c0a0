"""Kafka's error codes, as kio has them: the first module of kio that a process imports.

kio imports hypothesis if it is installed, which takes a third of a second and 20 MB. It is hidden during this import.
"""

import sys

sys.modules.setdefault("hypothesis", None)  # type: ignore[arg-type]
try:
    from kio.schema.errors import ErrorCode as ErrorCode
finally:
    if sys.modules.get("hypothesis") is None:
        del sys.modules["hypothesis"]
