"""Data sets in their published layouts: locations and readers."""
