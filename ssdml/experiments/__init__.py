"""Label-scarce comparisons: one resumable job a configuration, statistics and a report."""
