"""Work on the machines of a Ray cluster: joined, looked at, carried out on a node, and brought home."""
