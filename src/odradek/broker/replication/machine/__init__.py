"""The state machines of replication: a leader's high watermark and ISR, a follower's truncation by leader epoch."""
