"""The formats of the small text files beside the segments; `broker.log.directories` writes those of a directory."""
