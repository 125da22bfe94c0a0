"""One broker: it listens, decodes, decides, answers.

`lifecycle.Broker` owns everything. `serving` brings a request to its handler, of which `handlers` has one file per API;
`replication` has the partitions that this broker leads and follows. Produce and Fetch are plain calls from the socket
to the log; all other handlers may be coroutines. `cluster` is how a broker belongs to its cluster, `controlling` what
it does when it is the controller, `groups` what it does as a coordinator, and `observing` what it tells of itself.
"""
