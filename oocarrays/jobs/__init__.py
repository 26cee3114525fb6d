"""Runs that are planned first and done once asked for, one module for each kind."""
