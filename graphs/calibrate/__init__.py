"""Measurement of the cost model's constants, on a machine and on a live cluster."""
