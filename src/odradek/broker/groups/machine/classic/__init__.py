"""Groups of the classic protocol: members join and sync, and the leader computes the assignment.

`classic_groups` handles the requests and deadlines of all groups by `join`, `sync` and `rebalance`. `classic_group` has
one group, `members` its members, `states` its states.
"""
