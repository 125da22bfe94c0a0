"""The path of a request from the socket to its handler and back, and the state that handlers share.

`server` has the listeners, `dispatch` calls the handlers, `responses` makes frames, and `error_responses` refusals.
"""
