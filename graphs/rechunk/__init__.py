"""Rechunking of an array or of a whole group as tasks: begin, exchange, finish and resume."""
