"""Backbones, training data and the training loop of networks."""
