"""Whatever a crash leaves, recovery makes whole: the verification says so, which shares no code with it. Row M1."""

import random

import pytest

from odradek.broker.log import LogConfig, LogManager
from odradek.broker.log.inspection.findings import Finding
from odradek.broker.log.inspection.verification import Verification
from odradek.model import TopicPartition
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.virtual.disk import MemoryDisk, PowerCutError, Survival
from tests.broker.log import written_logs
from tests.broker.log.written_logs import NOW, maintain

T0 = TopicPartition("t", 0)


def new_manager(disk: MemoryDisk, *, flush_group: bool) -> LogManager:
    config = LogConfig(segment_bytes=700, index_interval_bytes=60, flush_group=flush_group)
    return written_logs.new_manager(disk, config=config, cluster_id="c")


def live(manager: LogManager, chance: random.Random) -> None:
    """A broker's life: appends of several leaders, maintenance, truncations, and sometimes a clean end."""
    manager.open(NOW)
    log = manager.get_or_create(T0, topic_id=None, now_ms=NOW)
    for number in range(chance.randrange(1, 40)):
        records = [
            (NOW + chance.randrange(100), None, b"x" * chance.randrange(60), ()) for _ in range(chance.randrange(1, 4))
        ]
        batch = encode_batch(records, producer_id=number, producer_epoch=0, base_sequence=0)
        log.append_as_leader(batch, leader_epoch=number // 10, now_ms=NOW + number)
        if chance.random() < 0.7:
            log.write()
        if chance.random() < 0.1:
            maintain(manager, NOW + number)
        if chance.random() < 0.05:
            log.write()
            offsets = [header.base_offset for _, header in iterate_batches(log.read(0, 1 << 20))]
            manager.truncate_to(T0, chance.choice(offsets))
    log.write()
    if chance.random() < 0.3:
        manager.close()


def verify(disk: MemoryDisk) -> list[Finding]:
    return list(Verification(disk, records=True).data_directory("/data"))


@pytest.mark.parametrize("number", range(60))
def test_after_a_crash_and_a_recovery_nothing_is_damaged(number: int) -> None:
    chance = random.Random(number)
    disk = MemoryDisk(chance)
    flush_group = chance.random() < 0.5
    disk.cut_power_at(chance.randrange(10, 150))
    try:
        live(new_manager(disk, flush_group=flush_group), chance)
    except PowerCutError:
        disk.cut_power(Survival.ANY)
    else:
        disk.kill()
    manager = new_manager(disk, flush_group=flush_group)
    manager.open(NOW + 100)
    running = verify(disk)
    assert "is in use" in running[0].reason
    assert not any(finding.is_damage for finding in running)
    manager.close()
    assert verify(disk) == []
