"""Files: downloads, archives, caches, folders and arrays of images."""
