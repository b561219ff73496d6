"""Load generators: each a program on a core of its own that carries out one order and prints one answer."""
