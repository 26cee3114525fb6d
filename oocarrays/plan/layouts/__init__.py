"""Plans of what must move when the layout of an array changes, and of what goes to neighbours or to all."""
