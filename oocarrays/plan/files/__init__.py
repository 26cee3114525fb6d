"""Scatter and gather between one array file and one per rank, halos of such files, and partitions."""
