"""How the controller commands the brokers of its cluster (DESIGN 3).

What to say follows from two images: `pending` collects what changed for one broker, `messages` says it by the latest
image, `channel` carries it, and `manager` has a sender to everybody. How they are obeyed is `broker.cluster`'s.

A broker is told in this order: UpdateMetadata, so that no topic is ever known in part; LeaderAndIsr, whose answer says
which logs can't be used; StopReplica. Each is sent until it is answered, and saying it twice does no harm.
"""
