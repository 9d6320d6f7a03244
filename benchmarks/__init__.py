"""Measurements as ratios, ours and the peer side by side in one run. `make bench` runs them all."""
