"""The registration of a broker in the metadata tree: checks before it, its renewal, and the fence."""
