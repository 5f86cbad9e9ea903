"""The robust suite: SSDML() against what anyone would try first, on twenty data sets."""
