"""What tests run on, ours and our users': virtual time, an in-memory network and disk, and a cluster in this process."""
