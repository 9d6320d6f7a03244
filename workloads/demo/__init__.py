"""The demo organisation, told by the real services on the sandbox cluster; nothing in it is drawn by hand.

Each act submits, stops or deletes through the same doors as people do and lets the simulated scheduler decide; between
acts everything that has happened is moved into the past, so that waits, runs and evictions have believable lengths.
"""
