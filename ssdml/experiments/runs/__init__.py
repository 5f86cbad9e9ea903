"""Plan, execute and store the runs of a comparison."""
