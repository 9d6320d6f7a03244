"""Real parts that tests start for themselves, and assertions that read like sentences."""
