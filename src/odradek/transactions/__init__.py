"""The transaction coordinator's state machine. Empty until it is implemented: a transactional id gets a fatal error."""
