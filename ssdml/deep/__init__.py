"""The estimator `DeepSSDML` and what a fit consists of."""
