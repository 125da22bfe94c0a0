"""The producer: records gather in batches per partition (accumulator), and a sender takes those to the leaders."""
