"""Arrays and groups as a person opens, makes and holds them."""
