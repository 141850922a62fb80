"""The machine a run is on: device, threads, memory, processes, signals."""
