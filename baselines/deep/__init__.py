"""Deep baselines, one method a file."""
