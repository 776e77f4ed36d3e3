"""What authors of stages and stores, and users who test their chains, can use in tests of their own."""
