"""Tables and statistics of a comparison."""
