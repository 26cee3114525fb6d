"""Requests: what a call asks for, and how a second call that asks for the same continues the first."""
