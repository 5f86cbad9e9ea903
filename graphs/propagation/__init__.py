"""Label and affinity propagation over a graph."""
