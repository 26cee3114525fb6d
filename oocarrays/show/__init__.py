"""What a person sees: lines, tables, trees, notebooks, pictures."""
