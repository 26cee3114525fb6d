"""Runs that stopped, and what any job has left: going on with it, or removing it."""
