"""The dashboard: a process of its own that shows one run to browsers and Prometheus, and changes nothing."""
