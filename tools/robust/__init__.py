"""The robust suite: SSDML() against what anyone would try first, on 23 data sets."""
