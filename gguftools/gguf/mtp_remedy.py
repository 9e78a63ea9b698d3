"""The commands that save an MTP head at conversion. Pure."""

from __future__ import annotations

import shlex

from gguftools.gguf.checkpoint import INDEX, Checkpoint
from gguftools.gguf.mtp_source import SourceMtp
from gguftools.gguf.reference_table import Family


def convert_command(checkpoint: Checkpoint, *options: str) -> str:
    """How to convert a checkpoint."""
    remote = ("--remote",) if not checkpoint.local else ()
    return shlex.join(["python", "convert_hf_to_gguf.py", *remote, checkpoint.where, *options])


def unlisted_text(checkpoint: Checkpoint, mtp: SourceMtp) -> str:
    """Which MTP weights the converter never sees, and why."""
    n = sum(not part.tensor.listed for part in mtp.parts)
    why = f"not listed in {INDEX}" if checkpoint.indexed else "not named model*.safetensors"
    return f"{n} MTP tensors lie in {', '.join(mtp.unlisted_files[:3])}, {why}: never read"


def list_shards(checkpoint: Checkpoint, mtp: SourceMtp) -> str:
    """How to make the converter see those weights."""
    renames = [shlex.join(["mv", file, f"model-{file}"]) for file in mtp.unlisted_files[:3]
               if not file.startswith("model")]  # fmt: skip
    if not checkpoint.indexed:
        return " && ".join(renames) + f", then {convert_command(checkpoint)}"
    shards = {tensor.file for tensor in checkpoint.tensors.values() if tensor.listed}
    if all(shard.startswith("model") for shard in shards):
        # Without an index every model*.safetensors is read (conversion/base.py:235).
        steps = " && ".join([*renames, f"mv {INDEX} {INDEX}.off"])
        return f"{steps}, then {convert_command(checkpoint)}"
    files = ", ".join(mtp.unlisted_files[:3])
    return f"add the tensors of {files} to weight_map in {INDEX}, then convert again"


def without_head(checkpoint: Checkpoint, family: Family) -> str:
    """How to convert the model as one without MTP."""
    if family.flags:
        return convert_command(checkpoint, "--no-nextn")
    return f'set "{family.key}": 0 in config.json, then {convert_command(checkpoint)}'


def graft(checkpoint: Checkpoint, family: Family) -> str:
    """How to get a head back that the weights lack."""
    plain = without_head(checkpoint, family)
    return (
        f"copy the MTP tensors of the base model in (its acceptance may fall), or without: {plain}"
    )
