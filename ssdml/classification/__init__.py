"""Classes of all rows from a few labels, by classifiers and a graph together."""
