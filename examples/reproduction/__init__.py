"""What only the tables of the papers need: published scores, compared losses, text tables."""
