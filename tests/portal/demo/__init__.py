"""The demo as `make demo` starts it: real processes, a real port, and only what its people and scripts can do."""
