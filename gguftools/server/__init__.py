"""A llama-server: its command line, its process, what it answers. I/O."""
