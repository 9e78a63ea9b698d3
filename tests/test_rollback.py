"""Rejected drafts leave no trace: every MTP architecture, with random weights and a real state."""

from __future__ import annotations

from pathlib import Path

import pytest

from gguftools.gguf.nextn_table import MTP_ARCHS
from gguftools.speculative.sampling import Chain
from tests.models.engine import generate
from tests.models.tiny import tiny, write

GREEDY = Chain(temp=0)
# gemma4-assistant drafts in llama-server only, the binding does not know qwen4exp, and the tiny
# trunks of the sparse-attention architectures have sizes that only their MTP graph accepts.
LEFT_OUT = {"gemma4-assistant", "qwen4exp", "deepseek32", "deepseek4", "glm-dsa"}
ARCHS = [a for a, spec in MTP_ARCHS.items() if not spec.no_graph and a not in LEFT_OUT]
PROMPT = tuple(range(5, 25))


@pytest.mark.parametrize("arch", ARCHS)
def test_greedy_text_with_mtp_is_the_plain_text(tmp_path: Path, arch: str) -> None:
    # mimo2 drafts only with a fused attn_qkv.
    write(tiny(arch, fused=arch == "mimo2"), path := tmp_path / "tiny.gguf")
    plain, _, _ = generate(path, "none", chain=GREEDY, n_predict=60, history=PROMPT, n_ctx=256)
    text, steps, _ = generate(
        path, "mtp", chain=GREEDY, n_draft=3, n_predict=60, history=PROMPT, n_ctx=256
    )
    assert text == plain
    assert any(s.n_accepted < s.n_verified for s in steps)


@pytest.mark.parametrize("arch", ["qwen35", "qwen3next", "nemotron_h_moe"])
def test_greedy_text_with_a_draft_model_or_lookup_is_the_plain_text(
    tmp_path: Path, arch: str
) -> None:
    """The draft is a random model too: nearly all it says is rejected, except by its equal."""
    write(tiny(arch), target := tmp_path / "target.gguf")
    write(tiny("qwen35"), draft := tmp_path / "draft.gguf")
    plain, _, _ = generate(target, "none", chain=GREEDY, n_predict=60, history=PROMPT, n_ctx=256)
    text, steps, _ = generate(
        target, "draft", draft=draft, chain=GREEDY, n_draft=4, n_predict=60, history=PROMPT,
        n_ctx=256,
    )  # fmt: skip
    assert text == plain
    assert sum(s.n_verified for s in steps) > 30
    looked_up, _, _ = generate(
        target, "ngram", chain=GREEDY, n_draft=4, n_predict=60, history=PROMPT, n_ctx=256
    )
    assert looked_up == plain
