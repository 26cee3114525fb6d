"""Which rank holds which element: distributions, layouts, halos, and local array files."""
