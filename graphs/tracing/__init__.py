"""Which sections of stored arrays a graph, or a run, reads and writes."""
