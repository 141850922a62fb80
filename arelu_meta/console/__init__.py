"""What commands share: flags from specs, the parser, exit codes, progress, text tables."""
