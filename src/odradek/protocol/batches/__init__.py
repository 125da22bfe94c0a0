"""Record batches of format version 2: headers, records, compression and checksums."""
