"""Sections of a stored array: the byte ranges to request, and the effects of writing on its chunks."""
