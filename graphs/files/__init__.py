"""Local array files as tasks: scattered, gathered, and their halos refreshed."""
