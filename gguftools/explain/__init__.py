"""Why is it not faster: reads reports, traces, logs and metrics, and names the cause."""
