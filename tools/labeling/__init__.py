"""What labeling a table is worth: suggested labels, expected accuracy, new labels, novelty."""
