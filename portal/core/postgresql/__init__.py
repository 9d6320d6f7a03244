"""The database backend for PostgreSQL; Django looks for its `base` module."""
