"""The estimator `SSDML` and what a fit consists of."""
