"""Readers of a user's own files: tables, arrays, images, and which column is what."""
