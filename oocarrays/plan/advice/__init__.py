"""Advice on the layout of stored arrays and on read methods, computed from traced accesses."""
