"""Who asks from outside, over gRPC: messages become events, and what was decided becomes messages."""
