"""From a finished directory to a verified, tagged commit."""
