"""The constants of the cost model, measured on a machine and on a live cluster."""
