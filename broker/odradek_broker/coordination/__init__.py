"""The parts that the group coordinator and the transaction coordinator share."""
