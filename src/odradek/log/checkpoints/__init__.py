"""Small text files beside the segments: checkpoints, leader epochs, `meta.properties`, `partition.metadata`."""
