"""Image sets that need no download: shipped with a dependency or drawn."""
