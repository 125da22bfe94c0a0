"""The consumer: who reads what (membership), from where (positions), and the records themselves (fetcher)."""
