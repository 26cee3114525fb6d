"""Arrays in the memory of ranks: distribution, redistribution, and collective reads."""
