"""What a CPU does faster for many episodes at once; private interfaces of torch are used here and nowhere else."""

GENERATION = 3
"""Raised when a change of kernels or of their memory layout gives a seed other results; a tag of runs, and reports say
where it differs."""
