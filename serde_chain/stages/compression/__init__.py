"""Compression, on the codecs' libraries, with bounded output."""
