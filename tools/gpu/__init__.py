"""Measurements on a CUDA device, a JSON line each: ``python -m tools.gpu``."""
