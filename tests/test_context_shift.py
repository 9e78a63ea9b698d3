"""A full context ends the reply, or is shifted: then drafts still change nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from gguftools.errors import UsageError
from gguftools.speculative.context import N_BATCH, Context
from gguftools.speculative.controller import CATCH_UP_MAX, Controller
from gguftools.speculative.excerpt import Excerpt
from gguftools.speculative.loop import Generation
from gguftools.speculative.plan import Settings
from gguftools.speculative.sampling import Chain
from gguftools.speculative.session import Session, open_session
from gguftools.speculative.stats import Step
from tests.commands import gguftools
from tests.models.engine import generation
from tests.models.tiny import tiny, write
from tests.test_rollback import ARCHS, PROMPT

GREEDY = Chain(temp=0)
N_CTX = 256
N_KEEP = 3
# M-RoPE has several positions a token, step35 rotates layers differently (get_can_shift, b11434).
FIXED = {"qwen35", "qwen35moe", "step35"}
MOVABLE = [arch for arch in ARCHS if arch not in FIXED]


def model(folder: Path, arch: str) -> Path:
    path = folder / f"{arch}.gguf"
    if not path.exists():
        write(tiny(arch, fused=arch == "mimo2"), path)
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shift")


def long_text(
    target: Path, kind: str, *, n: int = 700, **options: object
) -> tuple[list[int], list[Step], Generation]:
    """The tokens of a reply that fills the context several times."""
    with generation(
        target,
        kind,
        chain=GREEDY,
        n_predict=n,
        history=PROMPT,
        n_ctx=N_CTX,
        **options,  # type: ignore[arg-type]
    ) as made:
        made.n_keep = N_KEEP
        made.is_eog = lambda token: False
        steps = list(made.steps())
        assert made.stop_reason == "length"
        # The target holds what the text is after its shifts.
        assert made.target.n_past == len(made.history) - 1
        assert made.history[:N_KEEP] == list(PROMPT[:N_KEEP])
        return [token for step in steps for token in step.tokens], steps, made


@pytest.mark.parametrize("arch", MOVABLE)
def test_a_long_reply_goes_on_past_the_context_as_plain_decoding_does(
    folder: Path, arch: str
) -> None:
    path = model(folder, arch)
    plain, _, _ = long_text(path, "none")
    for kind in ("mtp", "ngram"):
        text, steps, _ = long_text(path, kind, n_draft=3)
        assert text == plain
        assert sum(s.n_verified for s in steps[-50:]) > 0
    assert len(plain) == 700


@pytest.mark.parametrize("arch", ["glm4moe", "qwen3next"])
def test_the_cache_of_a_draft_model_is_shifted_alike(folder: Path, arch: str) -> None:
    """A draft equal to the target must go on to be right, so it sees what the target sees."""
    path = model(folder, arch)
    plain, _, _ = long_text(path, "none")
    text, steps, _ = long_text(path, "draft", draft=path, n_draft=4)
    assert text == plain
    verified, accepted = (
        sum(getattr(s, f"n_{w}") for s in steps) for w in ("verified", "accepted")
    )
    assert accepted > 0.97 * verified


def test_what_the_context_forgets_is_the_older_half_after_n_keep(folder: Path) -> None:
    path = model(folder, "glm4moe")
    tokens, _, made = long_text(path, "none", n=400)
    whole = [*PROMPT, *tokens]
    n_gone = len(whole) - len(made.history)
    assert n_gone % ((N_CTX - N_KEEP) // 2) == 0
    assert made.history == [*whole[:N_KEEP], *whole[N_KEEP + n_gone :]]


def test_without_a_shift_a_full_context_ends_the_reply(folder: Path) -> None:
    path = model(folder, "glm4moe")
    with generation(path, "none", chain=GREEDY, n_predict=700, history=PROMPT, n_ctx=N_CTX) as made:
        made.is_eog = lambda token: False
        n = sum(len(s.tokens) for s in made.steps())
        assert (made.stop_reason, n) == ("context", N_CTX + 1 - len(PROMPT))


# -- the drafters' caches


def test_a_drafter_that_was_off_for_long_reads_the_start_and_the_recent_past(folder: Path) -> None:
    path = model(folder, "glm4moe")
    with generation(path, "draft", draft=path, chain=GREEDY, n_ctx=2048) as made:
        context = made.drafter.context  # type: ignore[union-attr]
        read, text = Excerpt(context), [5 + i % 20 for i in range(1500)]

        def see(stop: int) -> int:
            start = read.unread(text, stop)
            context.decode(text[start:stop])
            read.n = context.n_past
            return stop - start

        assert see(400) == 400  # all of a new text
        assert see(400 + CATCH_UP_MAX) == CATCH_UP_MAX
        assert see(1000) == CATCH_UP_MAX
        assert context.tokens == [*text[: 400 + CATCH_UP_MAX], *text[1000 - CATCH_UP_MAX : 1000]]
        assert see(1010) == 10
        assert see(1400) == CATCH_UP_MAX
        # One gap, however often it was off.
        assert context.tokens == [*text[: 400 + CATCH_UP_MAX], *text[1400 - CATCH_UP_MAX : 1400]]
        read.new_text(text)
        assert see(1450) == 50
        read.new_text([*text[:300], 9, 9, 9])
        assert read.n == 300


def test_a_head_that_is_off_costs_nothing_while_a_reply_is_written(models: dict[str, Path]) -> None:
    """Hidden rows wait for it, but not more than one batch of them."""
    path = models["hybrid-mtp"]
    with generation(path, "mtp", chain=GREEDY, n_predict=900, n_ctx=2048) as made:
        fixed, made.controller = made.controller, Controller(0)
        head: Context = made.drafter.context  # type: ignore[union-attr]
        for _ in made.steps():
            assert made.target.n_hidden <= N_BATCH + 1  # type: ignore[attr-defined]
        assert head.n_past == 0
        made.controller, made.n_predict = fixed, 40
        steps = list(made.steps())
        assert sum(s.n_accepted for s in steps) > 20


# -- sessions


def settings(path: Path, **changes: object) -> Settings:
    fixed: dict[str, object] = {"n_ctx": N_CTX, "n_threads": 1, "seed": 1, "chain": GREEDY}
    return Settings(path, **fixed | changes)  # type: ignore[arg-type]


def decoded(session: Session, prompt: str, n: int) -> tuple[list[int], int]:
    """The reply, and how many tokens of the prompt were read for it."""
    n_read = 0
    decode = session.target.decode

    def counting(tokens: Sequence[int], n_logits: int = 0, *rest: object) -> object:
        nonlocal n_read
        n_read += len(tokens) if n_logits == 0 else 0
        return decode(tokens, n_logits, *rest)  # type: ignore[arg-type]

    session.target.decode = counting  # type: ignore[assignment,method-assign]
    try:
        made = session.reply(prompt, n, raw=True)
        for _ in made:
            pass
    finally:
        session.target.decode = decode  # type: ignore[method-assign]
    return made.token_ids, n_read


def test_a_conversation_goes_on_past_the_context(models: dict[str, Path]) -> None:
    one = settings(models["target"], context_shift=True, drafter="ngram")
    prompt = "abc " * 20
    with open_session(one) as session:
        first, _ = decoded(session, prompt, 400)
        assert len(first) == 400
        text = prompt + "".join(session.model.piece(t).decode() for t in first)
        again, n_read = decoded(session, text + "abc", 30)
    assert len(again) == 30
    assert n_read < 10  # of a conversation of 480 tokens, whose rest is still cached


def test_verify_holds_past_the_context(models: dict[str, Path]) -> None:
    one = settings(models["target"], context_shift=True, draft=models["draft"], draft_min=3)
    with open_session(one) as session:
        made = session.reply("abc", 400, raw=True)
        for _ in made:
            pass
        assert session.compare_with_plain(made).holds


def test_a_model_that_cannot_shift_is_a_usage_error(models: dict[str, Path]) -> None:
    with pytest.raises(UsageError, match="qwen35"):
        open_session(settings(models["hybrid"], context_shift=True))


def test_the_command_line_says_why_a_reply_ended(models: dict[str, Path]) -> None:
    run = ["run", models["target"], "-c", "256", "-t", "1", "--temp", "0", "-p", "abc", "-n", "500"]
    done = gguftools(*run)
    assert done.returncode == 0
    assert "the context of 256 tokens is full" in done.stderr
    done = gguftools(*run, "--context-shift", "--keep", "8", "--stats")
    assert done.returncode == 0
    assert "500 tokens in" in done.stderr
    assert "full" not in done.stderr
    assert gguftools(*run, "--keep", "8").returncode == 2
