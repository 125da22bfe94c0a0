"""The registration of a broker in the metadata tree.

`broker_session` keeps the `registration`, which waits for `unclean_registration` where logs may have lost their ends;
`directories` compares the data directories with those in the tree; `fencing` stops the broker from acting when its
session may be over.
"""
