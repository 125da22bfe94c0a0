"""The controller's work, on whichever broker is elected; `odradek.controller` decides, this room acts.

In `controller_shell` is the one task of a broker that reads the tree, publishes images and stands for election. Elected
it has a `term`: its hand on the tree is `active_controller`, what it sees to unasked is in `duties`, what it is asked
for waits in a `job_queue` and is in `topic_jobs`, `partition_jobs` and `isr_jobs`. `availability` has what it knows of
brokers beside the tree; `commands` tell the brokers what changed, and `broker.cluster` says how they obey.
"""
