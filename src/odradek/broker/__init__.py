"""One broker: it listens, decodes, decides, answers.

`lifecycle.Broker` owns everything; `server` listens; `dispatch` finds the handler of a request, of which `handlers`
has one file per API; `partitions` has the logs that this broker leads, and gathers what is appended to them;
`purgatory` keeps what can't be answered yet. Produce and Fetch are plain calls from the socket to the log; all
other handlers may be coroutines.
"""
