"""The lab itself: control planes come, work and go."""
