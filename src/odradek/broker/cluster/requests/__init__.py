"""Requests between brokers: the connections, the requests to the controller, and the controlled shutdown."""
