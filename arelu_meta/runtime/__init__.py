"""Device, processes, threads, allocator, signals."""
