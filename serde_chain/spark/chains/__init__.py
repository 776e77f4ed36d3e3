"""The chains of a configuration: made portable and opened once on the driver, kept open in workers."""
