"""The transaction coordinator's machine. Empty until transactions are built: a transactional id gets a fatal error."""
