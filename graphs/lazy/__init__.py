"""Reading and writing of lazy arrays, as tasks."""
