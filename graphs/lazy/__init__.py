"""Lazy arrays in and out, as tasks."""
