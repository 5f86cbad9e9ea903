"""Fitted metrics: embed, predict, relabel, find novel samples, draw maps, save."""
