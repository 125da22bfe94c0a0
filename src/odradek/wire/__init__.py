"""Both ends of a connection that speaks Kafka's protocol: `connection` the broker's, `client_connection` the client's.

A broker's end hands each request to a `Service` as a memoryview, and sends each `reply` in order. It knows no API.
"""
