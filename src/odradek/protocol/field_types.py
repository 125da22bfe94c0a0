"""Field types for declaring messages and records that kio lacks, in the format of kio's dataclasses.

    leader_epoch: int = field(metadata={**INT32, "versions": "3+"}, default=-1)

`versions` is used where one class has the fields of all versions (`record_types`); kio has a class for each version.
"""

from typing import Final

BOOL: Final = {"kafka_type": "bool"}
INT8: Final = {"kafka_type": "int8"}
INT16: Final = {"kafka_type": "int16"}
INT32: Final = {"kafka_type": "int32"}
INT64: Final = {"kafka_type": "int64"}
STRING: Final = {"kafka_type": "string"}
BYTES: Final = {"kafka_type": "bytes"}
UUID: Final = {"kafka_type": "uuid"}
ERROR_CODE: Final = {"kafka_type": "error_code"}
