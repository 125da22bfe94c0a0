"""The formats of the small text files beside the segments; `broker.log.directories` writes those of a data directory.

`checkpoint_file` has the offset checkpoints of a data directory, `leader_epoch_cache` the leader epochs of a log, and
`meta_properties` the ids of a directory (`meta.properties`) and of a topic (`partition.metadata`).
"""
