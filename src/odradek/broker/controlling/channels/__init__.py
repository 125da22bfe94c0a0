"""The controller's requests to the other brokers: UpdateMetadata, LeaderAndIsr and StopReplica.

`pending_updates` compares two images and collects what one broker has not received, `requests` builds requests from
this and the latest image, `request_sender` sends them, and `controller_channel_manager` has a sender for every broker.
The receiving side is `broker.cluster.metadata.controller_command_handler`.

The requests are sent in this order: UpdateMetadata, so that no topic is known in part; LeaderAndIsr, whose response
names offline logs; StopReplica. Each is repeated until it is answered; a repeated request changes nothing.
"""
