"""The server's arithmetic: the method's half, its state, the sums over updates, the tests of models."""
