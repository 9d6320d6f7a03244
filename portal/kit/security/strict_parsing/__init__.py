"""Strict YAML and JSON for what people send: caps before parsing, no aliases, tags, merge keys or repeated keys.

Pure: bytes in, plain values with their lines out, or `DocumentRefused`.
"""
