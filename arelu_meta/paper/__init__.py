"""The AReLU paper (Chen et al. 2020, arXiv 2006.13858) as a whole: its figures, and the runs that measure it."""
