"""What a file under a GGUF name really is: pages, pointers, other formats."""

from __future__ import annotations


def looks_like(head: bytes | bytearray) -> str:
    """How the sentence `it starts with ...` goes on, from the first bytes of the file."""
    start = bytes(head[:512]).lstrip().lower()
    if start.startswith((b"<!doctype", b"<html")):
        return ", an HTML page (a login or error page saved as a model?)"
    if start.startswith(b"version https://git-lfs"):
        return ", a Git LFS pointer (run: git lfs pull)"
    if start.startswith((b"ggml", b"ggjt", b"ggla", b"tjgg", b"lmgg", b"fmgg")):
        return ", the GGML format before GGUF (convert it again)"
    if start.startswith(b"pk\x03\x04"):
        return ", a zip archive (a PyTorch checkpoint?)"
    if head[8:10] == b'{"':
        return ", a safetensors file (convert it: convert_hf_to_gguf.py)"
    if start.startswith((b'{"', b"[{")):
        return ", JSON (an error message saved as a model?)"
    return ", only zero bytes" if start and not start.strip(b"\0") else ""
