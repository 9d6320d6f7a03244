"""Changes of the dictionary, each through a plan."""
