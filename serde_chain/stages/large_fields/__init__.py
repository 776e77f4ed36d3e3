"""``large-fields``: moves single fields of a value to a store, and leaves references in their places."""
