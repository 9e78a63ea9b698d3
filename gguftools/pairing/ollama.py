"""Ollama's store: manifests name the blobs of each model. Reads manifests only. I/O.

manifests/HOST/NAMESPACE/MODEL/TAG is JSON whose layers have a media type and a digest, the name of
a file in blobs/ (ollama/ollama, manifest/manifest.go; manifests-v2 holds links to such JSON).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from gguftools.pairing.folders import ModelFile, Search, model_file, small_file
from gguftools.pairing.stores import json_object

MANIFEST_BYTES = 1 << 20  # real ones have about 1 kB
N_LAYERS_MAX = 256
_FOLDERS = ("manifests-v2", "manifests")
_MODEL_DEPTH = 3  # folders between manifests/ and a tag: host, namespace, model
# Projectors, adapters, single tensors and texts have media types of their own.
_MEDIA = {
    "application/vnd.ollama.image.model": "",
    "application/vnd.ollama.image.draft": " (draft)",
}
_DIGEST = re.compile(r"sha256[:-]([0-9a-fA-F]{64})")


def ollama_models(store: Path, search: Search) -> Iterator[tuple[ModelFile, str]]:
    """Each model and draft of a store, with the name that Ollama shows."""
    for folder in _FOLDERS:
        manifests = store / folder
        for path in search.files(manifests, _MODEL_DEPTH):
            name = _shown(path.relative_to(manifests).parts)
            for media, digest in _layers(store, path):
                if (blob := _blob(store, digest)) is not None:
                    yield blob, name + _MEDIA[media]


def _shown(parts: tuple[str, ...]) -> str:
    """library/qwen3/8b of Ollama's own registry is qwen3:8b."""
    host, namespace, model, tag = parts
    if host != "registry.ollama.ai":
        return f"{host}/{namespace}/{model}:{tag}"
    return f"{model}:{tag}" if namespace == "library" else f"{namespace}/{model}:{tag}"


def _layers(store: Path, path: Path) -> Iterator[tuple[str, str]]:
    """Media type and digest of each layer that is a model; of a list, of every manifest in it."""
    manifest = json_object(small_file(path, MANIFEST_BYTES))
    listed = manifest.get("manifests")
    children = [c for c in listed if isinstance(c, dict)] if isinstance(listed, list) else []
    for child in [manifest, *children[:N_LAYERS_MAX]]:
        layers = child.get("layers")
        digest = child.get("digest")
        if not layers and isinstance(digest, str) and (blob := _blob(store, digest)) is not None:
            layers = json_object(small_file(blob.path, MANIFEST_BYTES)).get("layers")
        for layer in layers[:N_LAYERS_MAX] if isinstance(layers, list) else []:
            if not isinstance(layer, dict):
                continue
            media, digest = layer.get("mediaType"), layer.get("digest")
            if isinstance(media, str) and media in _MEDIA and isinstance(digest, str):
                yield media, digest


def _blob(store: Path, digest: str) -> ModelFile | None:
    """The file of a digest, which early versions of Ollama wrote with a colon."""
    match = _DIGEST.fullmatch(digest)
    if match is None:
        return None
    blobs, hexadecimal = store / "blobs", match[1].lower()
    return model_file(blobs / f"sha256-{hexadecimal}") or model_file(
        blobs / f"sha256:{hexadecimal}"
    )
