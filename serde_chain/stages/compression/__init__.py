"""Compression, by libraries, within bounds."""
