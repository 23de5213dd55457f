"""placeholder, written next."""
