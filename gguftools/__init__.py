"""gguftools: inspect GGUF files, pair a target with a draft, run them faster and losslessly."""

__version__ = "0.1.0"
