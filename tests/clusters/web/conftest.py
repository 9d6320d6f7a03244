"""Pages and REST of clusters are tested with the shared cast's cluster."""

from tests.factories.cast import cluster

__all__ = ["cluster"]
