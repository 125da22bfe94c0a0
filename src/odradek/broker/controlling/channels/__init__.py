"""The controller's requests to the other brokers.

Two images are compared: `pending_updates` collects what changed for one broker, `requests` encodes it from the latest
image, `request_sender` sends it, and `controller_channel_manager` has a sender for every broker. The receiving side is
`broker.cluster.controller_command_handler`.

Requests are sent in this order: UpdateMetadata, so that no topic is known in part; LeaderAndIsr, whose response names
the logs that cannot be used; StopReplica. Each is sent until it is answered; a repeated one changes nothing.
"""
