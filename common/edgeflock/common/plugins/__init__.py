"""Code that somebody else has installed: found by entry point or by `package.module:NAME`, and told apart."""
