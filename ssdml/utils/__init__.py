"""Helpers for arrays, torch, files and validation."""
