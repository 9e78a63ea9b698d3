"""Every way we know to break an MTP file: (what was done, the broken model)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gguftools.gguf.nextn_table import MTP_ARCHS
from tests.models.tiny import TinyModel, tiny
from tests.models.tiny_archs import N_FF, N_VOCAB, VARIANTS

Mutation = tuple[str, TinyModel]


def mutations(arch: str) -> Iterator[Mutation]:
    """All of them for one architecture, on its split and on its fullest form."""
    for label, model in (
        ("plain", tiny(arch)),
        ("full", tiny(arch, fused=True, optional=True)),
    ):
        yield label, model
        for what, broken in (
            *_tensors(model),
            *_blocks(model),
            *_keys(model),
            *_extras(model),
            *_heads(model),
            *_hparams(model),
        ):
            yield f"{label}: {what}", broken
    yield from _variants(arch)


def _variants(arch: str) -> Iterator[Mutation]:
    """Other hyperparameters, whole and with one tensor of the head broken."""
    for keys in VARIANTS.get(arch, ()):
        label = ", ".join(f"{key}={value}" for key, value in keys.items())
        for fused in (False, True):
            model = tiny(arch, fused=fused, keys=keys)
            form = "fused, " if fused else ""
            yield f"{form}{label}", model
            for name in _mtp_names(model):
                shape = model.tensors[name]
                yield f"{form}{label}: without {name}", model.without(name)
                wider = (*shape[:-1], shape[-1] + 1)
                yield f"{form}{label}: {name} wider", model.reshaped(name, wider)


def _mtp_blocks(model: TinyModel) -> list[int]:
    return list(range(model.n_layer_all - model.n_nextn, model.n_layer_all))


def _mtp_names(model: TinyModel) -> list[str]:
    return [name for block in _mtp_blocks(model) for name in model.block(block)]


def _model_names(model: TinyModel) -> list[str]:
    return [name for name in model.tensors if not name.startswith("blk.")]


def _tensors(model: TinyModel) -> Iterator[Mutation]:
    """One tensor away, or of another shape."""
    for name in (*_mtp_names(model), *_model_names(model)):
        yield f"without {name}", model.without(name)
        shape = model.tensors[name]
        yield f"{name} wider", model.reshaped(name, (*shape[:-1], shape[-1] + 1))
        if len(shape) > 1:
            yield f"{name} flat", model.reshaped(name, (shape[0] * shape[1], *shape[2:]))
            yield f"{name} transposed", model.reshaped(name, (shape[1], shape[0], *shape[2:]))
        else:
            yield f"{name} as a row", model.reshaped(name, (*shape, 1))


def _blocks(model: TinyModel) -> Iterator[Mutation]:
    """Whole parts away."""
    mtp = _mtp_names(model)
    nextn = [name for name in mtp if ".nextn." in name]
    experts = [name for name in mtp if "_exps" in name or "_inp" in name or "exp_probs" in name]
    trunk = [n for n in model.tensors if n.startswith("blk.") and n not in mtp]
    yield "stripped", model.without(*mtp)
    yield "nextn tensors away", model.without(*nextn)
    yield "only nextn tensors", model.without(*(n for n in mtp if n not in nextn))
    yield "experts away", model.without(*experts)
    yield "expert weights away", model.without(*(n for n in experts if "_exps" in n))
    yield "shared experts away", model.without(*(n for n in mtp if "_shexp" in n))
    yield "feed-forward away", model.without(*(n for n in mtp if ".ffn_" in n or "exp_probs" in n))
    dense = _dense(model, _mtp_blocks(model))
    for part in ("gate", "up", "down"):
        lost = [f"blk.{block}.ffn_{part}.weight" for block in _mtp_blocks(model)]
        yield f"dense head without {part}", dense.without(*lost)
    yield "dense head, undeclared", dense
    yield "only eh_proj", model.without(*(n for n in mtp if "eh_proj" not in n))
    yield "head only", model.without(*trunk)
    yield "head only without eh_proj", model.without(*trunk, *(n for n in mtp if "eh_proj" in n))
    yield (
        "head only without attn_norm",
        model.without(*trunk, *(n for n in mtp if "attn_norm" in n)),
    )
    yield "head only without output", model.without(*trunk, "output.weight")
    yield "head only, tied", model.without(*trunk, "output.weight", "output_norm.weight")
    yield "head only, model away", model.without(*trunk, *_model_names(model))
    yield "no probe", model.without("blk.0.attn_norm.weight", "blk.0.hc_attn_norm.weight")
    yield "block 0 away", model.without(*model.block(0))
    for block in _mtp_blocks(model):
        yield f"block {block} away", model.without(*model.block(block))


def _keys(model: TinyModel) -> Iterator[Mutation]:
    """The key and block_count moved, in files with and without their head."""
    n_all, n_nextn = model.n_layer_all, model.n_nextn
    stripped = model.without(*_mtp_names(model))
    for text, base in (("", model), ("stripped, ", stripped)):
        for n in (None, 0, *range(1, n_nextn + 3), n_all, n_all + 1):
            for count in (n_all - n_nextn, n_all - 1, n_all, n_all + 1):
                if (n, count) != (n_nextn, n_all) and count > 0:
                    yield (
                        f"{text}key {n}, block_count {count}",
                        base.with_keys(nextn_predict_layers=n, block_count=count),
                    )
    for kind in ("uint64", "int32", "uint8", "string", "bool"):
        value: object = "1" if kind == "string" else kind == "bool" or n_nextn
        yield f"key as {kind}", model.with_keys(nextn_predict_layers=(kind, value))
    yield "block_count 0", model.with_keys(block_count=0)
    yield "block_count 600", model.with_keys(block_count=600)


def _extras(model: TinyModel) -> Iterator[Mutation]:
    """Tensors that nobody asked for."""
    n_embd, block = int(model.metadata["embedding_length"]), _mtp_blocks(model)[-1]
    at = f"blk.{block}."
    names = {
        f"{at}nextn.unheard_of.weight": (n_embd,),
        f"{at}nextn.shared_head.norm.weight": (n_embd,),
        f"{at}unheard_of.weight": (n_embd,),
        f"{at}attn_output.bias": (n_embd,),
        f"{at}layer_output_norm.weight": (n_embd,),
        "blk.0.nextn.eh_proj.weight": (2 * n_embd, n_embd),
        f"blk.{model.n_layer_all}.nextn.eh_proj.weight": (2 * n_embd, n_embd),
        f"blk.{model.n_layer_all}.attn_norm.weight": (n_embd,),
        "mtp.fc.weight": (2 * n_embd, n_embd),
        "model.mtp.layers.0.enorm.weight": (n_embd,),
        "nextn.pre_projection.weight": (n_embd, n_embd),
        "d2t": (N_VOCAB,),
    }
    for name, shape in names.items():
        if name not in model.tensors:
            yield f"extra {name}", model.reshaped(name, shape)
    small = (n_embd, N_VOCAB // 2)
    yield "reduced vocabulary", model.reshaped(f"{at}nextn.shared_head_head.weight", small)
    full = (n_embd, N_VOCAB)
    yield "own head", model.reshaped(f"{at}nextn.shared_head_head.weight", full)
    for weight in [n for n in model.block(block) if n.endswith(".weight")]:
        base = weight.removesuffix("weight")
        per_expert = (model.tensors[weight][-1],) if "_exps" in weight else (1,)
        for suffix in ("scale", "input_scale"):
            yield f"extra {base}{suffix}", model.reshaped(f"{base}{suffix}", per_expert)
        yield f"extra {base}scale of 3", model.reshaped(f"{base}scale", (3,))
    for part in "qkv":
        if f"{at}attn_{part}.weight" in model.tensors:
            n = model.tensors[f"{at}attn_{part}.weight"][1]
            yield f"extra {part} bias", model.reshaped(f"{at}attn_{part}.bias", (n,))
            yield f"extra {part} bias wrong", model.reshaped(f"{at}attn_{part}.bias", (n + 1,))
    if f"{at}attn_qkv.weight" in model.tensors:
        n = model.tensors[f"{at}attn_qkv.weight"][1]
        yield "extra qkv bias", model.reshaped(f"{at}attn_qkv.bias", (n,))
        yield "extra q beside qkv", model.reshaped(f"{at}attn_q.weight", (n_embd, n // 2))
        yield "extra q bias beside qkv", model.reshaped(f"{at}attn_q.bias", (32,))
    elif f"{at}attn_q.weight" in model.tensors:
        yield "extra qkv bias beside q", model.reshaped(f"{at}attn_qkv.bias", (64,))


def _heads(model: TinyModel) -> Iterator[Mutation]:
    """More heads than one, with some of them away."""
    if model.n_nextn != 1:
        return
    fused = model.tensors != tiny(model.arch).tensors
    both = tiny(model.arch, fused=fused, optional=fused, n_heads=2)
    two = both.without(*both.block(3))
    yield "two heads", both
    yield "two declared, the first there", two
    yield "two declared, the second there", both.without(*both.block(2))
    yield "two declared, second without eh_proj", both.without("blk.3.nextn.eh_proj.weight")
    yield "two declared, first without eh_proj", both.without("blk.2.nextn.eh_proj.weight")
    yield "two there, one declared", both.with_keys(nextn_predict_layers=1)


def _hparams(model: TinyModel) -> Iterator[Mutation]:
    """Hyperparameters that decide what the block must hold."""
    n_all = model.n_layer_all
    arrays = {
        "feed_forward_length": model.metadata["feed_forward_length"],
        "attention.head_count": model.metadata["attention.head_count"],
        "attention.head_count_kv": model.metadata["attention.head_count_kv"],
        "expert_used_count": model.metadata.get("expert_used_count"),
        "expert_feed_forward_length": model.metadata.get("expert_feed_forward_length"),
        "swiglu_clamp_exp": model.metadata.get("swiglu_clamp_exp"),
    }
    for key, value in arrays.items():
        if value is None:
            continue
        name = key.replace(".", "__")
        values = value if isinstance(value, list) else [value] * n_all
        yield f"{key} as array", model.with_keys(**{name: values})
        yield f"{key} short", model.with_keys(**{name: values[:-1]})
        yield f"{key} long", model.with_keys(**{name: [*values, values[-1]]})
    if "leading_dense_block_count" in model.metadata:
        trunk = range(n_all - model.n_nextn)
        dense = _dense(model, trunk).with_keys(leading_dense_block_count=n_all)
        yield "dense trunk, all declared dense", dense
        yield "dense head", _dense(dense, _mtp_blocks(model))
    if any("_shexp" in name for name in _mtp_names(model)):
        shared = [n for n in model.tensors if "_shexp" in n]
        yield "no shared experts", model.with_keys(expert_shared_count=0).without(*shared)
        yield "two shared experts", model.with_keys(expert_shared_count=2)
    if "recurrent" in str(MTP_ARCHS[model.arch].arrays):
        flags = [True] + [False] * (n_all - 1)
        yield "recurrent array", model.with_keys(attention__recurrent_layers=flags)
        marked = [True] + [False] * (n_all - 2) + [True]
        yield "head marked recurrent", model.with_keys(attention__recurrent_layers=marked)
        yield "recurrent short", model.with_keys(attention__recurrent_layers=flags[:-1])
    yield "value_length differs", model.with_keys(attention__value_length=24)
    yield "rope smaller", model.with_keys(rope__dimension_count=4)
    if model.arch == "exaone-moe":
        yield "rope_freqs", model.reshaped("rope_freqs.weight", (8,))


def _dense(model: TinyModel, blocks: Iterable[int]) -> TinyModel:
    """The MoE part of some blocks exchanged for a dense one."""
    n_embd = int(model.metadata["embedding_length"])
    for block in blocks:
        at = f"blk.{block}."
        moe = [n for n in model.block(block) if "_exps" in n or "_inp" in n or "_shexp" in n]
        if moe:
            model = model.without(*moe, f"{at}exp_probs_b.bias", f"{at}exp_probs_b").having(
                **{
                    f"{at}ffn_gate.weight": (n_embd, N_FF),
                    f"{at}ffn_up.weight": (n_embd, N_FF),
                    f"{at}ffn_down.weight": (N_FF, n_embd),
                }
            )
    return model
