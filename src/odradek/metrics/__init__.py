"""What a broker counts about itself, by Kafka's names. Nothing asks for it yet; the exporter will bring its counters."""
