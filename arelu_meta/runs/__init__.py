"""Kinds of runs: each module wires data, network, loops, checkpoints and tracking of one kind together."""
