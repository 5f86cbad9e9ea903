"""Estimators that train a network: `DeepSSDML` and the published method."""
