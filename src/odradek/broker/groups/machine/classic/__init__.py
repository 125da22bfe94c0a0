"""Groups of the classic protocol: members join and sync, and the leader computes the assignment."""
