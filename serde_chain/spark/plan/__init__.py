"""On the driver: the work is planned and checked before a row is read."""
