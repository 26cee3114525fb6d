"""A rechunk: its passes, the candidates they are chosen from, messages, and whole groups."""
