"""What lies on the device's disk: its identity, the method's state, the update that is not settled."""
