"""What `compaction_kernel` has, ready to be called: machine code, without numba's help once it was compiled here."""

from pathlib import Path
from typing import Final, NamedTuple

from odradek.columns.machine_code import Function, Kernels, Preparation

_SOURCES: Final = ("compaction_kernel", "compaction_layout", "decode_kernel", "encode_kernel", "memory")
KERNELS: Final = Kernels(
    "odradek.columns.compaction_kernel",
    {"find_batches": 9, "index_keys": 8, "keep_records": 10, "move_slots": 4},
    [
        *(Path(__file__).with_name(f"{name}.py") for name in _SOURCES),
        Path(__file__).parents[1] / "protocol" / "record_batch.py",
    ],
)
_prepared: Final = Preparation(KERNELS)


class CompactionCode(NamedTuple):
    """See `compaction_kernel`. Every argument is an int64, every address that of memory that its caller holds."""

    find_batches: Function
    index_keys: Function
    keep_records: Function
    move_slots: Function


def compaction_code() -> CompactionCode:
    """The functions; 50 ms when first asked for, and seconds if they have to be compiled. Raises as below."""
    functions = _prepared.functions(wait=True)
    assert functions is not None
    return CompactionCode(**functions)


def compaction_code_if_ready() -> CompactionCode | None:
    """The same; None while another process compiles them, which begins now if need be.

    Raises `ImportError` without llvmlite or numba, and whatever comes of libraries that do not fit.
    """
    functions = _prepared.functions(wait=False)
    return None if functions is None else CompactionCode(**functions)
