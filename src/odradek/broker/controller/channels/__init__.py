"""The controller's requests to the other brokers: UpdateMetadata.

`pending_updates` compares two images and collects what one broker has not received, `requests` builds the request from
this and the latest image, `request_sender` sends it, and `controller_channel_manager` has a sender for every broker.
The receiving side is `broker.cluster.metadata.controller_command_handler`.

The response names the logs that the broker cannot use. A request is repeated until it is answered; a repeated request
changes nothing.
"""
