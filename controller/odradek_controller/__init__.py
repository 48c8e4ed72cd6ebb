"""The cluster's metadata: records, image, levels, election, placement, and the stores that keep them."""
