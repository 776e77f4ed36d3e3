"""On the driver: what is to be done, decided and checked before a row is read."""
