"""Chunks of one array file: reading, writing, partial updates, and copying."""
