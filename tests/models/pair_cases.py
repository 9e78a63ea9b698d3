"""Pairs of small files of every kind, whole and broken in every way that a check looks for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from gguftools.gguf.nextn_table import MTP_ARCHS
from tests.models import bytes as raw
from tests.models import pair_files as files
from tests.models.pair_files import N_WORDS, N_WORDS_MTP, PairFile
from tests.models.tiny import tiny
from tests.models.tiny_vocab import TinyVocab, words
from tests.models.vocab_pairs import random_pair

FAMILIES = ("texts", "sizes", "flags", "random", "archs", "own", "sidecar", "assistant", "eagle3",
            "dflash", "dspark", "mixed")  # fmt: skip
# Its tiny trunk does not decode: sizes that only the MTP graph accepts (tests/test_rollback.py).
NO_TRUNK = {"deepseek32", "deepseek4", "glm-dsa"}
HEADS = [arch for arch, spec in MTP_ARCHS.items() if not spec.no_graph and arch not in NO_TRUNK]
HEADS.remove("gemma4-assistant")


@dataclass(frozen=True)
class Case:
    """A target and a draft; without one the target's own MTP head drafts."""

    family: str
    label: str
    target: PairFile
    draft: PairFile | None


def cases(seed: int = 1, n_random: int = 60) -> Iterator[Case]:
    """Every case, in the order of FAMILIES."""
    yield from _texts()
    yield from _sizes()
    yield from _flags()
    yield from _random(seed, n_random)
    yield from _archs()
    yield from _own()
    yield from _sidecars()
    yield from _assistants()
    yield from _eagle3()
    yield from _dflash()
    yield from _mixed()


def _texts() -> Iterator[Case]:
    """One text changed at every kind of position, and what only looks like a change."""
    target = files.llama()
    for i in (0, 1, 2, 3, 4, 5, 6, N_WORDS // 2, N_WORDS - 2, N_WORDS - 1):
        yield Case("texts", f"id {i}", target, target.words(N_WORDS, {i: b"changed"}))
    for i in (5, N_WORDS // 2, N_WORDS - 1):
        empty, named = ({i: b""}, {i: b"[EMPTY_%d]" % i})
        yield Case(
            "texts", f"empty {i}", target.words(N_WORDS, empty), target.words(N_WORDS, named)
        )
        yield Case("texts", f"emptied {i}", target, target.words(N_WORDS, empty))
        nul = {i: words(N_WORDS)[i] + b"\0hidden"}
        yield Case("texts", f"NUL in {i}", target, target.words(N_WORDS, nul))
    longer = target.words(N_WORDS + 20)
    for i in (N_WORDS - 1, N_WORDS, N_WORDS + 19):
        tail = target.words(N_WORDS + 20, {i: b"changed"})
        yield Case("texts", f"id {i} of a longer target", tail, target)
        yield Case("texts", f"id {i} of a longer draft", target, tail)
        yield Case("texts", f"id {i} of two longer ones", longer, tail)


def _sizes() -> Iterator[Case]:
    target = files.llama()
    for more in (1, 99, 100, 101, 127, 128, 129, 200):
        longer = target.words(N_WORDS + more)
        yield Case("sizes", f"draft +{more}", target, longer)
        yield Case("sizes", f"target +{more}", longer, target)
    longer = target.words(N_WORDS + 130, {40: b"changed"})
    yield Case("sizes", "+130 and a text", target, longer)
    rows = target.having({"token_embd.weight": (files.N_EMBD, N_WORDS + 4)})
    yield Case("sizes", "draft rows off", target, rows)
    yield Case("sizes", "target rows off", rows, target)


def _flags() -> Iterator[Case]:
    """BOS and EOS: the flag absent, false, true on either side; the ids equal or not."""
    target = files.llama()
    for which in ("bos", "eos"):
        for ours in (None, False, True):
            for theirs in (None, False, True):
                for ids in ((7, 7), (7, 8)):
                    sides = [
                        _flagged(which, flag, i)
                        for flag, i in zip((ours, theirs), ids, strict=True)
                    ]
                    label = f"{which} {ours} {theirs} {ids}"
                    yield Case("flags", label, *(target.speaking(side) for side in sides))
    plain = _flagged("bos", True, 7)
    yield Case("flags", "bos id absent", target.speaking(plain),
               target.speaking(_flagged("bos", True, None)))  # fmt: skip
    yield Case("flags", "bos id too large", target.speaking(plain),
               target.speaking(_flagged("bos", True, 5000)))  # fmt: skip
    for pre in ("qwen2", "llama-bpe", "tekken", "deepseek-r1-qwen"):
        other = replace(files.wordy(N_WORDS), pre=pre)
        yield Case("flags", f"pre {pre}", target, target.speaking(other))


def _flagged(which: str, flag: bool | None, token_id: int | None) -> TinyVocab:
    keys: list[tuple[str, int, raw.Scalar | str]] = []
    if flag is not None:
        keys.append((f"add_{which}_token", raw.BOOL, flag))
    if token_id is not None:
        keys.append((f"{which}_token_id", raw.U32, token_id))
    return replace(files.wordy(N_WORDS), keys=tuple(keys))


def _random(seed: int, n: int) -> Iterator[Case]:
    rng, target = random.Random(seed), files.llama()
    for i in range(n):
        sides = random_pair(rng)
        # What only one of the two has is never written: it would end the server.
        target = replace(target, n_written=min(len(side.tokens) for side in sides))
        yield Case("random", f"seed {seed} no {i}", *(target.speaking(side) for side in sides))


def _archs() -> Iterator[Case]:
    """Architectures may differ; hybrid and recurrent targets and drafts."""
    small = files.llama(n_words=N_WORDS_MTP)
    for arch in HEADS:
        yield Case("archs", f"{arch} + llama", files.mtp(arch), small)
        yield Case("archs", f"llama + {arch}", small, files.mtp(arch))
    dense = files.llama()
    for name, other in (("mamba", files.mamba()), ("qwen2", files.qwen2()),
                        ("qwen3", files.qwen3()), ("wide", files.llama(n_embd=64))):  # fmt: skip
        yield Case("archs", f"{name} + llama", other, dense)
        yield Case("archs", f"llama + {name}", dense, other)
    states = {arch: files.mtp(arch) for arch in ("qwen35", "qwen3next", "nemotron_h_moe")}
    states["mamba of 40"] = files.mamba(N_WORDS_MTP)
    for ours in states:
        for theirs in states:
            if ours != theirs or ours.startswith("mamba"):
                yield Case("archs", f"{ours} + {theirs}", states[ours], states[theirs])
    yield Case("archs", "gemma4 + llama", files.assistant_target(), small)


def _own() -> Iterator[Case]:
    """The target's own MTP head, whole and broken."""
    for arch in HEADS:
        made = files.mtp(arch)
        block = f"blk.{made.model.n_layer_all - made.model.n_nextn}."
        yield Case("own", arch, made, None)
        yield Case("own", f"{arch} no eh_proj", made.without(f"{block}nextn.eh_proj.weight"), None)
        if arch not in ("step35", "mimo2"):
            yield Case("own", f"{arch} undeclared", made.keys(nextn_predict_layers=None), None)
    yield Case("own", "llama", files.llama(), None)
    yield Case("own", "no trunk", files.sidecar(files.mtp("qwen35")), None)


def _sidecars() -> Iterator[Case]:
    for arch in HEADS:
        target = files.mtp(arch)
        draft = files.sidecar(target)
        n = N_WORDS_MTP
        yield Case("sidecar", f"{arch} fits", target, draft)
        yield Case("sidecar", f"{arch} text 20", target, draft.words(n, {20: b"changed"}))
        yield Case("sidecar", f"{arch} text 3", target, draft.words(n, {3: b"changed"}))
        yield Case("sidecar", f"{arch} longer", target, draft.words(n + 4))
        yield Case("sidecar", f"{arch} shorter", target.words(n + 4), draft)
        yield Case("sidecar", f"{arch} far longer", target, draft.words(n + 129))
        yield Case("sidecar", f"{arch} copy", target, target)
        no_output = draft.without("output.weight")
        yield Case("sidecar", f"{arch} no output", target, no_output)
        yield Case("sidecar", f"{arch} no embedding", target, draft.without("token_embd.weight"))
    yield from _reduced_sidecars()
    yield from _other_sidecars()


def _reduced_sidecars() -> Iterator[Case]:
    for arch in ("qwen35", "glm4moe"):
        target = files.mtp(arch)
        draft = files.sidecar(target)
        for d2t in (True, False):
            made = files.reduced(draft, range(10, 30), d2t=d2t)
            yield Case("sidecar", f"{arch} reduced, d2t {d2t}", target, made)
        block = f"blk.{target.model.n_layer_all - target.model.n_nextn}."
        head = {f"{block}nextn.shared_head_head.weight": (files.N_EMBD, 20)}
        yield Case("sidecar", f"{arch} reduced own head", target, draft.having(head))


def _other_sidecars() -> Iterator[Case]:
    """Sidecars of other widths, other trunks and other architectures."""
    qwen, glm = files.mtp("qwen35"), files.mtp("glm4moe")
    wide = files.mtp("qwen35", keys={"embedding_length": 64})
    yield Case("sidecar", "qwen35 wide head", qwen, files.sidecar(wide))
    yield Case("sidecar", "qwen35 wide target", wide, files.sidecar(qwen))
    deep = _deeper(qwen)
    yield Case("sidecar", "qwen35 head of a deeper trunk", qwen, files.sidecar(deep))
    yield Case("sidecar", "qwen35 head of a flatter trunk", deep, files.sidecar(qwen))
    yield Case("sidecar", "qwen35 + glm4moe", qwen, files.sidecar(glm))
    yield Case("sidecar", "glm4moe + qwen35", glm, files.sidecar(qwen))
    yield Case("sidecar", "qwen35 + qwen35moe", qwen, files.sidecar(files.mtp("qwen35moe")))
    plain = files.llama(n_words=N_WORDS_MTP)
    yield Case("sidecar", "llama + qwen35", plain, files.sidecar(qwen))
    yield Case("sidecar", "qwen35 without a head + sidecar", _headless(qwen), files.sidecar(qwen))
    yield Case("sidecar", "glm4moe without a head + sidecar", _headless(glm), files.sidecar(glm))
    for arch in ("step35", "mimo2", "hy_v3"):
        target = files.mtp(arch)
        one = files.mtp(arch, n_heads=1)
        yield Case("sidecar", f"{arch} one head", target, files.sidecar(one))
        yield Case("sidecar", f"{arch} two heads", one, files.sidecar(target))
    yield Case("sidecar", "qwen35 two heads", qwen, files.sidecar(files.mtp("qwen35", n_heads=2)))


def _deeper(made: PairFile) -> PairFile:
    """Two more blocks of trunk, copies of the first two."""
    model = made.model
    n = model.n_layer_all - model.n_nextn
    blocks = {f"blk.{i + n}.{k.split('.', 2)[2]}": model.tensors[k]
              for i in range(n) for k in model.block(i)}  # fmt: skip
    heads = {f"blk.{2 * n}.{k.split('.', 2)[2]}": model.tensors[k] for k in model.block(n)}
    return (
        made.without(*model.block(n))
        .having({**blocks, **heads})
        .keys(block_count=model.n_layer_all + n)
    )


def _headless(made: PairFile) -> PairFile:
    """As a converter writes it without the head."""
    model = made.model
    n = model.n_layer_all - model.n_nextn
    bare = made.without(*(name for i in range(n, model.n_layer_all) for name in model.block(i)))
    return bare.keys(block_count=n, nextn_predict_layers=None)


def _assistants() -> Iterator[Case]:
    target, draft = files.assistant_target(), files.mtp("gemma4-assistant")
    yield Case("assistant", "fits", target, draft)
    yield Case("assistant", "text 20", target, draft.words(N_WORDS_MTP, {20: b"changed"}))
    yield Case("assistant", "longer", target, draft.words(N_WORDS_MTP + 4))
    yield Case("assistant", "on llama", files.llama(n_words=N_WORDS_MTP, n_embd=48), draft)
    yield Case("assistant", "on qwen35", files.mtp("qwen35"), draft)
    yield Case("assistant", "no projection", target,
               draft.without("nextn.pre_projection.weight"))  # fmt: skip
    wide = PairFile(tiny("gemma4-assistant", keys={"embedding_length_out": 64}), draft.vocab)
    yield Case("assistant", "wide", target, wide.keys(context_length=512))


def _eagle3() -> Iterator[Case]:
    target, draft = files.qwen3(n_layer=4), files.eagle3()
    for name, other in (("qwen3", target), ("llama", files.llama()), ("qwen2", files.qwen2()),
                        ("mamba", files.mamba())):  # fmt: skip
        yield Case("eagle3", f"on {name}", other, draft.keys(target_layers=[0, 1, 1]))
    for layers in ([0, 2, 3], [1, 2, 4], [0, 1, 5], [-1, 1, 2], [0, 1], [0, 1, 2, 3], None):
        yield Case("eagle3", f"layers {layers}", target, draft.keys(target_layers=layers))
    hybrid = files.mtp("qwen35")
    on_hybrid = files.eagle3(n_words=N_WORDS_MTP)
    for layers in ([0, 1, 1], [0, 1, 2], [0, 1, 3]):
        yield Case(
            "eagle3", f"qwen35, layers {layers}", hybrid, on_hybrid.keys(target_layers=layers)
        )
    yield Case("eagle3", "target width", target, files.eagle3(n_embd_target=64))
    yield Case("eagle3", "narrow draft", target, files.eagle3(n_embd=64))
    yield Case("eagle3", "narrow, no embedding", target,
               files.eagle3(n_embd=64).without("token_embd.weight"))  # fmt: skip
    yield Case("eagle3", "narrow, no output", target,
               files.eagle3(n_embd=64).without("output.weight"))  # fmt: skip
    yield from _broken("eagle3", target, draft)
    yield Case("eagle3", "two blocks", target, files.eagle3(n_layer=2))
    yield from _vocabularies("eagle3", target, draft)
    yield from _maps("eagle3", target, draft)


def _vocabularies(family: str, target: PairFile, draft: PairFile) -> Iterator[Case]:
    """Token lists that llama.cpp does not compare for these kinds."""
    mask = files.masked if family != "eagle3" else lambda vocab: vocab
    for label, n, changes in (("text 3", N_WORDS, {3: b"changed"}),
                              ("text 20", N_WORDS, {20: b"changed"}),
                              ("longer", N_WORDS + 5, {}), ("shorter", N_WORDS - 5, {}),
                              ("far longer", N_WORDS + 129, {})):  # fmt: skip
        yield Case(family, label, target, draft.speaking(mask(files.wordy(n, changes))))
    bare = draft.without("token_embd.weight", "output.weight")
    yield Case(family, "shares both", target, bare)
    yield Case(family, "shares both, longer", target,
               bare.speaking(mask(files.wordy(N_WORDS + 5))))  # fmt: skip


def _maps(family: str, target: PairFile, draft: PairFile) -> Iterator[Case]:
    """Reduced vocabularies: the map right, missing, of another length, out of range."""
    ids = list(range(10, 60))
    yield Case(family, "reduced", target, files.reduced(draft, ids))
    yield Case(family, "reduced, no map", target, files.reduced(draft, ids, d2t=False))
    short = replace(files.reduced(draft, ids), maps={"d2t": tuple(ids[:40])})
    yield Case(family, "map too short", target, short)
    for label, bad in (("beyond", N_WORDS), ("far beyond", 1 << 20), ("negative", -1)):
        yield Case(family, f"map {label}", target, files.reduced(draft, [*ids[:-1], bad]))
    yield Case(family, "map to the last", target, files.reduced(draft, [*ids[:-1], N_WORDS - 1]))
    no_output = files.reduced(draft, ids).without("output.weight")
    yield Case(family, "map without an output", target, no_output)
    wrong = files.reduced(draft, ids, d2t=False).having({"d2t": (len(ids),)})
    yield Case(family, "map of floats", target, wrong)


def _dflash() -> Iterator[Case]:
    target = files.qwen3(n_layer=4)
    for family, make in (("dflash", files.dflash), ("dspark", files.dspark)):
        draft = make()
        for name, other in (("qwen3", target), ("llama", files.llama()), ("qwen2", files.qwen2())):
            yield Case(family, f"on {name}", other, draft)
        for layers in ((0, 3), (1, 4), (0, 5), (-1, 1), (2,), (0, 1, 2)):
            yield Case(family, f"layers {layers}", target, make(layers=layers))
        yield Case(family, "no layers", target, draft.keys(target_layers=None))
        yield Case(family, "wide", target, make(n_embd=64))
        hybrid = make(n_words=N_WORDS_MTP)
        yield Case(family, "on qwen35", files.mtp("qwen35"), hybrid)
        yield Case(family, "on qwen3next", files.mtp("qwen3next"), hybrid)
        for size in (None, 1, 2, 3, 8):
            yield Case(family, f"block size {size}", target, draft.keys(block_size=size))
        yield Case(family, "mask absent", target, draft.speaking(files.wordy(N_WORDS)))
        yield from _broken(family, target, draft)
        yield from _vocabularies(family, target, draft)
        yield from _maps(family, target, draft)
    draft = files.dspark()
    for anchor in (True, False):
        yield Case("dspark", f"anchor {anchor}", target, draft.keys(sample_from_anchor=anchor))


def _broken(family: str, target: PairFile, draft: PairFile) -> Iterator[Case]:
    """Each tensor left out, and each of another size."""
    for name, shape in draft.model.tensors.items():
        yield Case(family, f"without {name}", target, draft.without(name))
        larger = draft.having({name: (*shape[:-1], shape[-1] + 16)})
        yield Case(family, f"larger {name}", target, larger)
    yield Case(family, "another tensor", target, draft.having({"blk.0.extra.weight": (8,)}))


def _mixed() -> Iterator[Case]:
    """Files in roles that are not theirs."""
    dense, qwen = files.llama(), files.mtp("qwen35")
    yield Case("mixed", "the same file", dense, dense)
    yield Case("mixed", "eagle3 as target", files.eagle3(), dense)
    yield Case("mixed", "dflash as target", files.dflash(), dense)
    yield Case("mixed", "sidecar as target", files.sidecar(qwen), files.sidecar(qwen))
    yield Case("mixed", "assistant as target", files.mtp("gemma4-assistant"), qwen)
    yield Case("mixed", "eagle3 on eagle3", files.eagle3(), files.eagle3())
    small = files.llama(n_words=N_WORDS_MTP)
    yield Case("mixed", "no vocabulary", small, small.speaking(None))
    none = replace(files.wordy(N_WORDS_MTP), model="no_vocab")
    yield Case("mixed", "no_vocab", small.speaking(none), small.speaking(none))
    for arch in ("glm4moe", "hy_v3"):
        made = files.mtp(arch)
        yield Case("mixed", f"{arch} + its copy of another size", made,
                   files.mtp(arch, keys={"embedding_length": 64}))  # fmt: skip
    for arch in ("qwen35", "glm4moe", "hy_v3"):
        made = files.mtp(arch)
        yield Case("mixed", f"{arch} + its copy with a broken head", made,
                   made.without("blk.2.nextn.eh_proj.weight"))  # fmt: skip
        yield Case("mixed", f"{arch} without a head + whole", _headless(made), made)
        yield Case("mixed", f"{arch} + without a head", made, _headless(made))
