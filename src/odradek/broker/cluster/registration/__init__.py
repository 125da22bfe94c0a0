"""The registration of a broker in the metadata tree.

`broker_session` renews the `registration` with each session. Before the first one, `directories` compares the data
directories with those stored in the tree, and `unclean_registration` waits after an unclean shutdown. `fencing` stops
the broker from acting when its session may have expired. `dead_brokers` removes registrations of killed brokers.
`kafka_directories` adopts a data directory of Apache Kafka.
"""
