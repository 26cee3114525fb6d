"""Bytes from rank to rank between workers: what every exchange sends, carries and receives, as tasks."""
