"""Losses on torch embeddings, one family a file."""
