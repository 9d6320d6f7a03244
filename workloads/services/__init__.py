"""Verbs that change workloads, dictionary, types and plans. Each is one transaction with its audit record."""
