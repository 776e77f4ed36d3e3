"""Protobuf, on Google's library."""
