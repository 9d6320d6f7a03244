"""Findings: what went wrong with scheduling, what it cost, and what would help."""
