"""Files of strangers, damaged files, and what they may do: nothing."""
