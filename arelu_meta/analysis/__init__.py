"""Statistics over the runs of a comparison and what follows from them; knows nothing of output."""
