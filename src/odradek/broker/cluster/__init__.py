"""How a broker belongs to its cluster: it is known to live, knows the others, and does what the controller says.

`membership` keeps its `registration` in the tree, which waits for `readmission` where logs may have lost their ends;
`fencing` closes when the tree is silent for too long. What the broker knows is its `cluster_view`: `commands` come to
`obedience`, which has `merging` make the next image of them. `peers` and `connecting` are the ways to other brokers, by
public requests and by those that only brokers know; to the controller they lead by `controller_requests`. It hears of
disks that fail from `log_dir_events`, and of a broker that wants to stop from `controlled_shutdown`. `counted_store`
counts what is asked of the tree.
"""
