"""The quotas of clients, in force: windows of rates, throttle times, muted connections, limits of connections."""
