"""Many logs in one broker's hands, with descriptors for a few (row M1)."""

import os

from odradek.broker.log.log_config import LogConfig
from odradek.model import TopicPartition
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.virtual.disk import MemoryDisk
from tests.broker.log.scene import NOW, maintain, opened

LOGS = 10_000 if "ODRADEK_SEEDS" in os.environ else 1_000
OPEN_FILES = LOGS // 100


def test_many_logs_are_written_maintained_closed_and_opened_with_few_descriptors() -> None:
    disk = MemoryDisk()
    config = LogConfig(flush_ms=1000)
    partitions = [TopicPartition("t", number) for number in range(LOGS)]

    manager = opened(disk, config=config, max_open_files=OPEN_FILES)
    for partition in partitions:
        log = manager.get_or_create(partition, topic_id=None, now_ms=NOW)
        log.append_as_leader(encode_batch([(NOW, None, b"%d" % partition.partition, ())]), leader_epoch=0, now_ms=NOW)
        log.write()
        assert manager.pool.open_files <= OPEN_FILES
    maintain(manager, NOW + 2000)
    assert all(log.writer.synced_offset == 1 for log in manager.logs.values())
    assert manager.pool.open_files <= OPEN_FILES
    manager.close()
    assert manager.pool.open_files == 0
    manager = opened(disk, config=config, max_open_files=OPEN_FILES)
    assert list(manager) == partitions
    for partition, log in manager.logs.items():
        assert (log.log_start_offset, log.log_end_offset) == (0, 1)
        assert b"%d" % partition.partition in log.read(0, 1 << 20)
        assert manager.pool.open_files <= OPEN_FILES
    manager.kill()
