"""Advice on stored arrays, as a person asks for it, reads it and lets it be applied."""
