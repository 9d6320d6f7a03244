"""One module per group of commands. Each registers its commands with `register`."""
