"""Both ends of a TCP connection that speaks Kafka's protocol.

`connection` is the broker's end: it reads from the transport into pooled buffers (`buffers`), splits them into frames
(`frames`), hands each request to a `Service` as a memoryview, and sends each `reply` in order. It knows no API.
`client_connection` is the client's end: it negotiates API versions, sends requests and matches responses to them.
`connection_group` holds what the connections of one server share: the limits of each (`ConnectionLimits`), memory
(`memory_pressure`), time (`connection_scheduler`). The number of connections is limited in
`broker.security.quotas.connection_quotas`.
"""
