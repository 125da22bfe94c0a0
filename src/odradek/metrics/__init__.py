"""What a broker counts about itself, by Kafka's names. Nothing asks for it yet; its exporter will bring them."""
