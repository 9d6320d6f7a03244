"""The command line, as a person and a pipeline use it."""
