"""Ranks on the workers of a cluster: where they are, what they hold, how messages reach them."""
