"""Authentication, authorization and quotas: the seams by which they plug into a broker, and their defaults."""
