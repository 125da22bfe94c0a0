"""10,000 logs in one broker's hands, with descriptors for a few (row M1)."""

import random

from odradek.log import LogConfig, LogManager
from odradek.model import TopicPartition
from odradek.protocol.batches.records import encode_batch
from odradek.testing.simulation.disk import MemoryDisk

NOW = 1_800_000_000_000
LOGS = 10_000
OPEN_FILES = 100


def test_ten_thousand_logs_are_written_maintained_closed_and_opened_with_few_descriptors() -> None:
    disk = MemoryDisk()
    config = LogConfig(flush_ms=1000)
    partitions = [TopicPartition("t", number) for number in range(LOGS)]

    def opened() -> LogManager:
        manager = LogManager(
            disk,
            ["/data"],
            broker_id=1,
            entropy=random.Random(1),
            config_for=lambda topic: config,
            max_open_files=OPEN_FILES,
        )
        manager.open(NOW)
        return manager

    manager = opened()
    for partition in partitions:
        log = manager.get_or_create(partition, topic_id=None, now_ms=NOW)
        log.append(encode_batch([(NOW, None, b"%d" % partition.partition, ())]), leader_epoch=0, now_ms=NOW)
        log.write()
        assert manager.pool.open_files <= OPEN_FILES
    manager.maintenance.run(NOW + 2000)
    assert all(log.synced_offset == 1 for log in manager.logs.values())
    assert manager.pool.open_files <= OPEN_FILES
    manager.close()
    assert manager.pool.open_files == 0
    manager = opened()
    assert list(manager) == partitions
    for partition, log in manager.logs.items():
        assert (log.log_start_offset, log.log_end_offset) == (0, 1)
        assert b"%d" % partition.partition in log.read(0, 1 << 20)
        assert manager.pool.open_files <= OPEN_FILES
    manager.kill()
