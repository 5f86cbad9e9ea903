"""Label all rows of a file of which some are labeled: ``ssdml label``."""
