"""Groups of the classic protocol: members join and sync, and one of them computes the assignment.

`classic_groups` has the groups of a coordinator, `classic_group` one group's state, `members` its members, `states` the
table of its transitions. `join`, `sync` and `rebalance` have the rules.
"""
