"""What a fitted metric does: embed, predict, relabel, find novel samples, draw maps, save."""
