"""Rechunk plans: passes, candidates, messages, and whole groups."""
