"""Everything is killed, cut and restarted under conversations, and afterwards nothing is lost, doubled or false."""
