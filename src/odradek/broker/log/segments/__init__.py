"""A log's segments and their indexes: the files, reading them, and replacing them."""
