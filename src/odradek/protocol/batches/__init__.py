"""Record batches, format version 2: a broker reads their headers, clients and internal topics also their records."""
