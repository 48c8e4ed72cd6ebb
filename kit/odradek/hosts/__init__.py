"""Where a cluster runs: `thread` in this process, `process` in a child; both are a `host`."""
