"""A real cluster in this process: a thread for each broker, loopback ports, injected faults."""
