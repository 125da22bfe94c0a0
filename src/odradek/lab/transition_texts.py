"""Sentences on a change of a group."""

from odradek.lab.what_if import Transition


def transition_sentence(made: Transition) -> str:
    """Return how many partitions move, are new, and are no longer read."""
    fresh, gone = len(made.moves) - len(made.moved), sum(move.after is None for move in made.moved)
    moved = len(made.moved) - gone
    return (
        f"{made.run.strategy}, {made.protocol.value} rebalance: {counted(moved, 'partition')} "
        f"{'moves' if moved == 1 else 'move'}"
        + (f", {counted(fresh, 'partition')} new" if fresh else "")
        + (f", {counted(gone, 'partition')} no longer read" if gone else "")
    )


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, as "1 partition" or "1,200 partitions"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
