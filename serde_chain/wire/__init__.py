"""Wire formats: conversions between bytes and values, without I/O and third-party packages."""
