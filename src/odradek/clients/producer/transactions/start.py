"""Starts a producer's sender; with a transactional id, earlier producers of the id are fenced first."""

from collections.abc import Awaitable, Callable

from odradek.clients.cluster import Cluster
from odradek.clients.producer.compression_ratio import CompressionRatioEstimator
from odradek.clients.producer.metrics import ProducerMetrics
from odradek.clients.producer.placement import RecordPlacer
from odradek.clients.producer.record_accumulator import RecordAccumulator
from odradek.clients.producer.sender import Sender
from odradek.clients.producer.settings import ProducerSettings
from odradek.clients.producer.transaction_manager import TransactionManager
from odradek.clients.producer.transactions.coordinator_requests import CoordinatorRequests
from odradek.clients.producer.transactions.machine import TransactionMachine
from odradek.clients.producer.transactions.transactions import Transactions
from odradek.config.definition import INT_MAX
from odradek.model import UnavailableError


async def start_sender(
    cluster: Cluster,
    settings: ProducerSettings,
    accumulator: RecordAccumulator,
    placer: RecordPlacer,
    metrics: ProducerMetrics,
    estimator: CompressionRatioEstimator,
    flush: Callable[[], Awaitable[None]],
) -> tuple[Sender, Transactions | None]:
    """Connect; return the sender, and the transactions of a producer that has a transactional id."""
    await cluster.start(timeout_ms=min(settings.max_block_ms, settings.default_api_timeout_ms))
    name = settings.transactional_id
    sequences = TransactionManager(is_transactional=name is not None) if settings.enable_idempotence else None
    requests = None
    if name is not None:
        assert sequences is not None
        two_phase = settings.transaction_two_phase_commit_enable
        machine = TransactionMachine(name, INT_MAX if two_phase else settings.transaction_timeout_ms)
        requests = CoordinatorRequests(cluster, settings, machine, sequences)
    sender = Sender(cluster, settings, accumulator, placer, metrics, estimator, sequences, requests)
    if requests is None:
        return sender, None
    transactions = Transactions(sender, requests, cluster.runtime.clock, flush)
    try:
        await transactions.initialize()
    except BaseException:
        sender.close(UnavailableError("the producer has not started"))
        raise
    return sender, transactions
