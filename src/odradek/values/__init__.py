"""Keys and values of records: text and JSON for people, Avro and Protobuf for them and for Spark."""
