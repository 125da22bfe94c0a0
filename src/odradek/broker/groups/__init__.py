"""The group coordinator of the `__consumer_offsets` partitions that this broker leads.

`group_coordinator` gives `broker.coordinators` the topic and the machine of `odradek.groups`, takes the handlers'
requests, and logs the events of `odradek.groups`.
"""
