"""The command line ``ssdml``."""
