"""Decoders of Avro and Protobuf values, run by Spark's Python workers: a column of bytes → a column of structs.

`avro` and `protobuf` make a `Decoder` from a schema file's content; `decoding` applies it to Arrow arrays.
"""

from odradek.spark.values.avro import AvroDecoder
from odradek.spark.values.decoding import Decoder, decode_arrays
from odradek.spark.values.protobuf import ProtobufDecoder

__all__ = ["AvroDecoder", "Decoder", "ProtobufDecoder", "decode_arrays"]
