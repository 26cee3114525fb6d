"""Distribution of elements over ranks: distributions, layouts, halos, and local array files."""
