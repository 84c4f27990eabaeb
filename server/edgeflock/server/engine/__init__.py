"""The decisions carried out: each effect becomes an event, on the event loop and its threads."""
