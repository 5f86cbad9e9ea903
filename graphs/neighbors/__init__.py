"""Nearest-neighbor search and graphs."""
