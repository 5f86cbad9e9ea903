"""Array, torch and file helpers that every package uses."""
