"""The check of a client's leader epoch, which leaders and followers share (KIP-320)."""

from odradek.model import ErrorCode, KafkaError


def check_leader_epoch(clients: int, ours: int) -> None:
    """Raise FENCED_LEADER_EPOCH if the client's epoch is older, UNKNOWN_LEADER_EPOCH if newer; -1 is not checked."""
    if clients >= 0 and clients != ours:
        raise KafkaError(ErrorCode.fenced_leader_epoch if clients < ours else ErrorCode.unknown_leader_epoch)
