"""The transactions of a producer (KIP-98, KIP-447, KIP-890, KIP-939).

`transaction_machine` decides: the states of Kafka's TransactionManager as one table, which errors abort a transaction
and which end the producer, when EndTxn and a new epoch are needed. It has no clock and no I/O. `coordinator_requests`
sends the requests to the coordinators of the transactional id and of groups; `transactions` has the calls of
`Producer`, in terms of both. `errors` and `prepared_transaction` are for applications.
"""
