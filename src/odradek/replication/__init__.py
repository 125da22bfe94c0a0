"""The leader's and the follower's machines: high watermark, in-sync set, truncation by leader epoch."""
