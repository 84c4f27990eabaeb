"""What the device's processor does: slots, local work, tests of the client's own model, what it takes."""
