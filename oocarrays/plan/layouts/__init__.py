"""What must move when the layout of an array changes, and what goes to neighbours or to all."""
