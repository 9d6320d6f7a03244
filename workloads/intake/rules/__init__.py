"""The allowlists: each rule checks one part of tenant input and returns it rebuilt. Pure."""
