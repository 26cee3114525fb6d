"""Streams as a person holds them: opened, written, read, one cell at a time, and made arrays again."""
