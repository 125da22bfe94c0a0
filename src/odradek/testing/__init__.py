"""What tests run on, ours and our users': virtual time, a network and a disk in memory, a cluster in this process."""
