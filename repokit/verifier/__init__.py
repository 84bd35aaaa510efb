"""A finished directory against its manifest, and against the library that loads it."""
