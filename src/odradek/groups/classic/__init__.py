"""Groups of the classic protocol: members join and sync, and the leader computes the assignment.

`classic_groups` has the groups of a coordinator, `classic_group` one group, `members` its members, `states` its states.
`join`, `sync` and `rebalance` handle requests and deadlines.
"""
