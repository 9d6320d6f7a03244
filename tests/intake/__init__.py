"""Bad and good input through the one door."""
