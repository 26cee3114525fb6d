"""Reductions as a person asks for them: a result at once, or a job that writes one."""
