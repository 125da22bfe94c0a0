"""Reads from Kafka: batches, streams, and streams that are members of a consumer group.

On the driver the readers get offsets from `lookup`, also for `startingOffsets` and the like (`boundaries`); `planning`
(pure) limits them to a batch (`maxOffsetsPerTrigger`) and divides them among tasks. `filters` narrows a batch read by
the filters that Spark pushes. In a task, `scan` fetches record batches and returns them as Arrow.
"""
