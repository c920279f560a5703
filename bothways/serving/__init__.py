"""A server over HTTP: routes, queue, limits, metrics (extra `serve`)."""
