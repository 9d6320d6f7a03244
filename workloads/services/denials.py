"""The verbs of workloads leave a record where the answer is no."""

from portal.audit.denials import verb

__all__ = ["verb"]
