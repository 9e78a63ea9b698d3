"""Run as a child process: what the installed binding can do, as one JSON object on stdout.

A library for another CPU or driver can end the process that loads it, so that doctor does not.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from gguftools.errors import EngineError
from gguftools.speculative.devices import list_devices
from gguftools.speculative.llama import build_name, has_amx, lib, lib_ext, supports_gpu

_NEXTN = ("llama_set_embeddings_nextn", "llama_get_embeddings_nextn")


def main() -> None:
    """Print the facts."""
    devices = list_devices()
    facts = {
        "build": build_name(),
        "llama_cpp": _llama_cpp(),
        "system": lib.llama_print_system_info().decode("utf-8", "replace").strip(),
        "gpu": supports_gpu(),
        "amx": has_amx(),
        "mtp": _has_mtp(),
        "devices": [
            {
                "name": device.name,
                "description": device.description,
                "free_bytes": device.free_bytes,
                "total_bytes": device.total_bytes,
            }
            for device in devices
        ],
    }
    print(json.dumps(facts))


def _llama_cpp() -> str:
    """The version of its llama.cpp, by the name of its library; empty if that does not say."""
    folder = Path(lib.__file__).parent / "lib"
    names = sorted(path.name for path in folder.glob("libllama.*"))
    found = (re.search(r"\d+\.\d+\.\d+", name) for name in names)
    return next((match[0] for match in found if match), "")


def _has_mtp() -> bool:
    try:
        ext = lib_ext()
    except EngineError:
        return False
    return all(hasattr(ext, name) for name in _NEXTN)


if __name__ == "__main__":
    main()
