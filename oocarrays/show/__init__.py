"""Text and pictures for people: lines, tables, trees, notebooks, pictures."""
