"""Decisions of the dictionary. Pure: values in, values out."""
