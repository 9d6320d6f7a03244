"""Ways to speak to an API server. Adapters, not clients: each raises `clusters.errors` and nothing of its own."""
