"""Pure parts of coordinators: deadlines, hashes. No I/O, no clock, no randomness."""
