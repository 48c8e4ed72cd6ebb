"""What the group coordinator and the transaction coordinator share."""
