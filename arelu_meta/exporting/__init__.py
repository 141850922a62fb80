"""Take a trained network out of the store, in a format that others read."""
