"""What both ends know of the wire: messages, chunks, channels, addresses, TLS."""
