"""One array file into one a rank and back, halos of such files, and partitions that fit in memory."""
