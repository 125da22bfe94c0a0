"""Keys and values of records: text and JSON for people, Avro and Protobuf for them and for Spark.

`value_formats` and `record_formats` print and read records. `avro` and `protobuf` make a `Decoder` from a schema file's
content; `decoding` applies it to Arrow arrays: a column of bytes → a column of structs.
"""
