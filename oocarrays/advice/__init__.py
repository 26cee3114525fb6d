"""Advice on the chunks of stored arrays."""
