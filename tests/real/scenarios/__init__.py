"""Seeded scenarios of one pod that wants room: as plain values, as objects of a cluster, as a snapshot of the model."""
