"""Requests: the arguments of a call, and how an identical second call continues the first."""
