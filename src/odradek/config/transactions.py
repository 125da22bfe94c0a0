"""The broker's keys of transactions; `broker` has the table of deliberate deviations."""

from dataclasses import dataclass

from odradek.config.definition import boolean, integer, short
from odradek.config.network import NetworkConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionConfig(NetworkConfig):
    """The keys of the transaction coordinator, its topic, and the partitions of transactions."""

    transaction_partition_verification_enable: bool = boolean(
        "transaction.partition.verification.enable", True, "Whether a transactional batch needs its transaction."
    )
    add_partitions_to_txn_retry_backoff_ms: int = integer(
        "add.partitions.to.txn.retry.backoff.ms", 20, "Pause before a partition is added again.", minimum=1
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = integer(
        "add.partitions.to.txn.retry.backoff.max.ms", 100, "How long a partition is added again.", minimum=0
    )
    transaction_max_timeout_ms: int = integer(
        "transaction.max.timeout.ms", 900_000, "Limit of a producer's transaction.timeout.ms.", minimum=1
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = integer(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        10_000,
        "How often transactions that are open for too long are aborted.",
        minimum=1,
    )
    transactional_id_expiration_ms: int = integer(
        "transactional.id.expiration.ms", 604_800_000, "How long an idle transactional id is kept.", minimum=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = integer(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        3_600_000,
        "How often idle transactional ids are removed.",
        minimum=1,
    )
    transaction_two_phase_commit_enable: bool = boolean(
        "transaction.two.phase.commit.enable", False, "Whether producers may take part in two-phase commits (KIP-939)."
    )
    transaction_state_log_num_partitions: int = integer(
        "transaction.state.log.num.partitions",
        16,
        "Partitions of __transaction_state, fixed when it is created.",
        minimum=1,
    )
    transaction_state_log_replication_factor: int = short(
        "transaction.state.log.replication.factor", 3, "Replicas of __transaction_state.", minimum=1
    )
    transaction_state_log_min_isr: int = integer(
        "transaction.state.log.min.isr", 2, "min.insync.replicas of __transaction_state.", minimum=1
    )
    transaction_state_log_segment_bytes: int = integer(
        "transaction.state.log.segment.bytes", 104_857_600, "A segment of __transaction_state.", minimum=14
    )
