"""Messages of a topic for the page: read, searched, decoded, masked and exported. Nothing here knows HTML."""
