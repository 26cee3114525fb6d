"""Arrays in the memory of ranks: shared out, redistributed, and read together from disk."""
