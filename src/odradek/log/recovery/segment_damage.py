"""Damage in a segment that was whole: suspected by a reader, confirmed off the event loop.

A reader meets a batch that cannot be what was written. That may be the file, or an index that misled, or messages of
the formats 0 and 1, which are not read. `Suspicion.run` walks the file and tells: it is damaged, it is whole, or, with
an error, that is not known.
"""

from odradek.log.errors import DamagedFileError
from odradek.log.segments.batch_scan import scan_file
from odradek.log.segments.old_formats import old_message
from odradek.log.segments.segment import Segment
from odradek.model.values import dataclass
from odradek.protocol.record_batch import verify_crc
from odradek.runtime import Disk


@dataclass(slots=True, kw_only=True)
class Suspicion:
    """What is to be checked of a segment, as it was when it was suspected. `run` may be called on any thread."""

    segment: Segment
    disk: Disk
    size: int
    next_offset: int
    is_cut: bool

    @classmethod
    def of(cls, segment: Segment) -> "Suspicion":
        """Return what is to be checked of `segment`, as far as it is written."""
        return cls(
            segment=segment,
            disk=segment.pool.disk,
            size=segment.written_size,
            next_offset=segment.next_offset,
            is_cut=segment.is_cut,
        )

    def run(self) -> DamagedFileError | None:
        """Return the first damage in the file, or None if it is whole. Raises `OSError` if it cannot be read."""
        segment, path = self.segment, self.segment.log.path
        file = self.disk.open(path, read_only=True)
        lowest = segment.base_offset
        try:
            for position, header, data in scan_file(file, path, self.size):
                if not verify_crc(data, 0, header):
                    return DamagedFileError(path, position, f"has a wrong checksum at offset {header.base_offset}")
                if not lowest <= header.base_offset <= header.last_offset < self.next_offset:
                    offsets = f"{header.base_offset} to {header.last_offset}"
                    return DamagedFileError(
                        path, position, f"has a batch of the offsets {offsets}, and {lowest} was due"
                    )
                lowest = header.next_offset
        except DamagedFileError as error:
            is_old = old_message(file, error.byte, self.size) is not None
            return None if is_old else error
        finally:
            file.close()
        return DamagedFileError(path, self.size, "has lost its end") if self.is_cut else None
