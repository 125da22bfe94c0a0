"""A pipeline's TOML file: `parsing` turns it into the classes of `pipelines`, and reports errors with their line."""
