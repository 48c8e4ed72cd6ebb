"""Pure parts of coordinators: steps, deadlines, hashes. No I/O, no clock, no randomness."""
