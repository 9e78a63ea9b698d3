"""Sessions on real llama.cpp: refusals before loading, turns, ends, cancels, text."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gguftools.errors import FormatError, GGUFToolsError, RefusedError, SourceError, UsageError
from gguftools.speculative.equality import Equality
from gguftools.speculative.plan import DrafterName, Settings, plan
from gguftools.speculative.reply import Reply
from gguftools.speculative.sampling import Chain
from gguftools.speculative.session import Session, open_session
from tests.models.chain import random_chain
from tests.models.markov import N_VOCAB, write_llama, write_qwen35
from tests.models.tiny import tiny, write
from tests.models.vocabulary import EOS

Models = dict[str, Path]
PROMPT = "abc abc"


def settings(path: Path, **changes: object) -> Settings:
    greedy = Chain(temp=0)
    fixed = Settings(path, drafter="none", chain=greedy, n_ctx=1024, n_threads=1, seed=1)
    return replace(fixed, **changes)  # type: ignore[arg-type]


def finish(reply: Reply) -> Reply:
    for _ in reply:
        pass
    return reply


def complete(one: Settings, n: int = 80, prompt: str = PROMPT) -> Reply:
    with open_session(one) as session:
        return finish(session.reply(prompt, n, raw=True))


def with_paths(models: Models, options: dict[str, str]) -> dict[str, Any]:
    """The options of a case, its draft as a path."""
    return {k: models[v] if k == "draft" else v for k, v in options.items()}


DRAFTERS = [
    ("target", {"drafter": "draft", "draft": "draft"}),
    ("target", {"drafter": "ngram"}),
    ("hybrid-mtp", {"drafter": "mtp"}),
    ("hybrid", {"drafter": "mtp", "draft": "mtp-sidecar"}),
    ("hybrid", {"drafter": "draft", "draft": "draft"}),
]


@pytest.mark.parametrize(("target", "options"), DRAFTERS)
def test_every_drafter_gives_the_plain_text_and_drafts(
    models: Models, target: str, options: dict[str, str]
) -> None:
    changes = with_paths(models, options)
    one = settings(models[target])
    plain = complete(one)
    drafted = complete(replace(one, draft_max=4, draft_min=4, **changes))
    assert drafted.token_ids == plain.token_ids
    assert drafted.text == plain.text
    assert drafted.report.n_draft > 0
    assert plain.report.n_draft == 0


@pytest.mark.parametrize(
    ("target", "options", "drafter"),
    [
        ("hybrid-mtp", {}, "mtp"),
        ("hybrid", {}, "ngram"),
        ("target", {"draft": "draft"}, "draft"),
        ("hybrid", {"draft": "mtp-sidecar"}, "mtp"),
    ],
)
def test_auto_takes_a_head_else_the_draft_else_lookup(
    models: Models, target: str, options: dict[str, str], drafter: str
) -> None:
    draft = models[options["draft"]] if options else None
    assert plan(settings(models[target], drafter="auto", draft=draft)).drafter == drafter


@pytest.mark.parametrize(("drafter", "used"), [("auto", "mtp"), ("draft", "draft")])
def test_a_given_draft_beats_the_own_head_only_when_asked_for(
    models: Models, drafter: str, used: str
) -> None:
    one = settings(models["hybrid-mtp"], draft=models["draft"], drafter=drafter, draft_min=8)
    with open_session(one) as session:
        assert session.drafter_name == used
        assert bool(session.notes) == (drafter == "auto")
        reply = finish(session.reply(PROMPT, 40, raw=True))
    assert reply.report.n_draft > 0
    assert reply.token_ids == complete(settings(models["hybrid-mtp"]), n=40).token_ids


def test_what_to_expect_of_a_drafter_is_foretold_from_its_file(models: Models) -> None:
    def expected(draft: str, drafter: DrafterName, temp: float = 0.0) -> tuple[float, float]:
        one = settings(models["target"], drafter=drafter, draft=models[draft])
        return plan(one).expected(drafter, temp)

    cost, kept = expected("draft", "draft")
    assert 0.05 < cost < 0.6  # one block against two
    assert 0.5 < kept < 0.99
    assert expected("draft", "draft", temp=1.0)[1] < kept
    assert expected("target", "draft")[0] == 1.0
    alone = plan(settings(models["hybrid-mtp"], drafter="mtp"))
    assert 0.0 < alone.expected("mtp", 0.0)[0] < 1.0
    assert alone.expected("ngram", 0.0)[0] == 0.0


# -- refused before llama.cpp sees it


def test_the_longest_draft_is_shorter_where_every_row_keeps_a_state(models: Models) -> None:
    target, hybrid = Settings(models["target"]), Settings(models["hybrid-mtp"])
    assert (plan(target).draft_max, plan(hybrid).draft_max) == (16, 8)
    assert plan(replace(hybrid, draft_min=12)).draft_max == 12
    assert plan(replace(hybrid, draft_max=20)).draft_max == 20
    with open_session(replace(hybrid, n_ctx=256)) as session:
        assert (session.draft_max, session.target.n_rs_seq) == (8, 8)


def test_a_trunk_without_a_head_is_refused_for_mtp(models: Models) -> None:
    with pytest.raises(RefusedError, match="MTP"):
        open_session(settings(models["hybrid"], drafter="mtp"))


def test_a_trunk_only_file_that_would_abort_is_refused_for_mtp(tmp_path: Path) -> None:
    whole = tiny("glm4moe")
    block = f"blk.{whole.n_layer_all - 1}."
    write(whole.without(*[n for n in whole.tensors if n.startswith(block)]), tmp_path / "t.gguf")
    with pytest.raises(RefusedError, match="MTP"):
        open_session(settings(tmp_path / "t.gguf", drafter="mtp"))


def test_a_head_of_another_width_is_refused(models: Models, tmp_path: Path) -> None:
    wide = random_chain(N_VOCAB, 1)
    write_qwen35(tmp_path / "wide.gguf", wide, mtp=None, n_embd=256)
    with pytest.raises(RefusedError, match=r"(?i)wid"):
        open_session(settings(tmp_path / "wide.gguf", drafter="mtp", draft=models["mtp-sidecar"]))


def test_a_draft_of_another_vocabulary_is_refused_with_the_token(models: Models) -> None:
    with pytest.raises(RefusedError, match=r"id \d+"):
        open_session(settings(models["target"], drafter="draft", draft=models["stranger"]))


def test_a_truncated_file_is_refused(models: Models, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    shutil.copy(models["target"], cut)
    with cut.open("r+b") as file:
        file.truncate(cut.stat().st_size - 1000)
    with pytest.raises(RefusedError, match="1000"):
        open_session(settings(cut))


def test_a_head_alone_cannot_be_the_target(models: Models) -> None:
    with pytest.raises(RefusedError, match="head"):
        open_session(settings(models["mtp-sidecar"]))


def test_missing_and_foreign_files_are_said(models: Models, tmp_path: Path) -> None:
    with pytest.raises(SourceError):
        open_session(settings(tmp_path / "none.gguf"))
    (tmp_path / "text.gguf").write_text("not a model" * 10)
    with pytest.raises(FormatError):
        open_session(settings(tmp_path / "text.gguf"))
    with pytest.raises(UsageError):
        open_session(settings(models["target"], drafter="draft"))
    with pytest.raises(UsageError):
        open_session(settings(models["target"], draft_min=9, draft_max=8))


def test_a_context_that_cannot_be_allocated_is_an_error_not_an_abort(models: Models) -> None:
    with pytest.raises(GGUFToolsError, match="context"):
        open_session(settings(models["target"], n_ctx=2_000_000_000))


# -- ends


def chain_to_the_end(length: int) -> np.ndarray:
    """Token 20 is followed by 21, and so on; after `length` tokens the text ends."""
    chain = random_chain(N_VOCAB, 3)
    for i in range(length):
        chain[20 + i] = 0
        chain[20 + i, 21 + i if i < length - 1 else EOS] = 1
    return chain


@pytest.mark.parametrize("n_draft", [1, 2, 3, 5, 8])
def test_a_reply_ends_at_the_eog_token_inside_an_accepted_draft(
    tmp_path: Path, n_draft: int
) -> None:
    path = write_llama(tmp_path / "ends.gguf", chain_to_the_end(12))
    prompt = "i"  # token 20
    plain = complete(settings(path), prompt=prompt)
    drafted = complete(
        settings(path, drafter="draft", draft=path, draft_max=n_draft, draft_min=n_draft),
        prompt=prompt,
    )
    assert plain.stop_reason == drafted.stop_reason == "eog"
    assert plain.token_ids[-1] == EOS
    assert drafted.token_ids == plain.token_ids
    assert len(plain.token_ids) == 12
    assert drafted.text == plain.text


@pytest.mark.parametrize(("target", "options"), DRAFTERS)
def test_a_reply_never_drafts_past_the_context(
    models: Models, target: str, options: dict[str, str]
) -> None:
    changes = with_paths(models, options)
    one = settings(models[target], n_ctx=256)
    plain = complete(one, n=1000)
    drafted = complete(replace(one, draft_max=8, draft_min=8, **changes), n=1000)
    assert plain.stop_reason == drafted.stop_reason == "context"
    assert drafted.token_ids == plain.token_ids
    assert len(plain.token_ids) + len(PROMPT) == 256 + 1


def test_n_predict_is_kept_to_the_token(models: Models) -> None:
    for n in (1, 2, 7):
        reply = complete(settings(models["hybrid-mtp"], drafter="mtp", draft_min=8), n=n)
        assert len(reply.token_ids) == n
        assert reply.stop_reason == "length"


def test_a_prompt_longer_than_the_context_is_a_usage_error(models: Models) -> None:
    with pytest.raises(UsageError, match="context"):
        complete(settings(models["target"], n_ctx=256), prompt="a" * 400)


# -- comparison with plain decoding


@pytest.mark.parametrize(("target", "options"), DRAFTERS)
def test_a_drafted_greedy_text_holds_against_plain_decoding(
    models: Models, target: str, options: dict[str, str]
) -> None:
    changes = with_paths(models, options)
    with open_session(settings(models[target], draft_min=4, draft_max=4, **changes)) as session:
        reply = finish(session.reply(PROMPT, 30, raw=True))
        assert session.compare_with_plain(reply) == Equality(30)


def test_a_text_that_is_not_the_targets_is_found_out(models: Models) -> None:
    with open_session(settings(models["target"], drafter="ngram")) as session:
        reply = finish(session.reply(PROMPT, 30, raw=True))
        right = reply.token_ids[12]
        reply.token_ids[12] = wrong = (right + 1) % 90
        found = session.compare_with_plain(reply)
    assert (found.position, found.plain, found.drafted) == (12, right, wrong)
    assert found.gap is not None
    assert found.noise is not None
    assert found.gap > 2 * found.noise
    assert not found.holds


def test_sampled_texts_are_not_compared(models: Models) -> None:
    with open_session(settings(models["target"], chain=Chain())) as session:
        reply = finish(session.reply(PROMPT, 3, raw=True))
        with pytest.raises(UsageError, match="greedy"):
            session.compare_with_plain(reply)


# -- turns


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def converse(session: Session, questions: Sequence[str], n: int = 30) -> list[Reply]:
    messages: list[dict[str, str]] = []
    replies = []
    for question in questions:
        messages.append(user(question))
        replies.append(finish(session.reply(messages, n)))
        messages.append(answer(replies[-1].text))
    return replies


@pytest.mark.parametrize("target", ["target", "hybrid-mtp"])
def test_a_turn_decodes_only_what_is_new(models: Models, target: str) -> None:
    one = settings(models[target], drafter="auto")
    with open_session(one) as session:
        n_decoded: list[int] = []
        decode = session.target.decode

        def counting(tokens: Sequence[int], n_logits: int = 0, *rest: object) -> object:
            if n_logits == 0:
                n_decoded.append(len(tokens))
            return decode(tokens, n_logits, *rest)  # type: ignore[arg-type]

        session.target.decode = counting  # type: ignore[assignment,method-assign]
        first, second = converse(session, ["hello", "more"])
        n_new = second.report.n_prompt - first.report.n_prompt - len(first.token_ids)
        assert sum(n_decoded) <= first.report.n_prompt + n_new + 2


@pytest.mark.parametrize("target", ["target", "hybrid-mtp"])
def test_turns_equal_those_of_fresh_sessions(models: Models, target: str) -> None:
    questions = ["hello", "more", "and then?"]
    one = settings(models[target], drafter="auto")
    with open_session(one) as session:
        replies = converse(session, questions)
    messages: list[dict[str, str]] = []
    for question, reply in zip(questions, replies, strict=True):
        messages.append(user(question))
        with open_session(settings(models[target])) as fresh:
            assert finish(fresh.reply(messages, 30)).text == reply.text
        messages.append(answer(reply.text))


@pytest.mark.parametrize("target", ["target", "hybrid-mtp"])
@pytest.mark.parametrize("how", ["stop", "close"])
def test_a_reply_may_be_left_at_any_token(models: Models, target: str, how: str) -> None:
    one = settings(models[target], drafter="auto", draft_max=4, draft_min=4)
    with open_session(one) as session:
        whole = finish(session.reply(PROMPT, 40, raw=True)).text
        for n in (1, 2, 5, 9):
            reply = session.reply(PROMPT, 40, raw=True)
            pieces = iter(reply)
            for _ in range(n):
                next(pieces)
            if how == "stop":
                reply.stop()
                for _ in pieces:
                    pass
                assert reply.stop_reason == "cancelled"
            else:
                pieces.close()
            assert whole.startswith(reply.text)
            again = finish(session.reply(PROMPT + reply.text, 40 - len(reply.token_ids), raw=True))
            assert reply.text + again.text == whole


def test_a_changed_conversation_is_read_again(models: Models) -> None:
    with open_session(settings(models["hybrid-mtp"], drafter="auto")) as session:
        finish(session.reply([user("hello")], 20))
        other = finish(session.reply([user("hullo")], 20))
    with open_session(settings(models["hybrid-mtp"])) as fresh:
        assert finish(fresh.reply([user("hullo")], 20)).text == other.text


# -- text


def test_characters_split_over_tokens_come_whole(tmp_path: Path) -> None:
    chain = random_chain(N_VOCAB, 9, utf8=True)
    path = write_llama(tmp_path / "utf8.gguf", chain)
    one = settings(path, chain=Chain(1.0, 0, 1.0, 0.0))
    for drafter in ("none", "ngram"):
        with open_session(replace(one, drafter=drafter)) as session:
            reply = session.reply(PROMPT, 400, raw=True)
            text = "".join(piece.text for piece in reply)
        assert text == reply.text
        assert "\u20ac" in text
        assert "\ufffd" not in text[:-1]  # the reply may end inside a character


@pytest.mark.parametrize("n_draft", [1, 3, 8])
def test_a_stop_string_inside_an_accepted_draft_ends_the_text_before_it(
    models: Models, n_draft: int
) -> None:
    one = settings(models["target"], drafter="draft", draft=models["target"], draft_max=n_draft,
                   draft_min=n_draft)  # fmt: skip
    with open_session(one) as session:
        whole = finish(session.reply(PROMPT, 40, raw=True)).text
        stop = whole[5:8]
        reply = finish(session.reply(PROMPT, 40, raw=True, stop=("never there", stop)))
        assert reply.stop_reason == "stop"
        assert reply.text == whole[: whole.index(stop)]
        assert len(reply.token_ids) < 40
        again = finish(session.reply(PROMPT + reply.text, 40 - len(reply.text), raw=True))
        assert reply.text + again.text == whole


def test_drafted_pieces_are_marked(models: Models) -> None:
    one = settings(models["target"], drafter="draft", draft=models["target"], draft_max=3,
                   draft_min=3)  # fmt: skip
    with open_session(one) as session:
        flags = [piece.drafted for piece in session.reply(PROMPT, 12, raw=True)]
    assert flags == [True, True, True, False] * 3


def test_a_seed_gives_the_same_sampled_text_again(models: Models) -> None:
    one = settings(models["target"], drafter="draft", draft=models["draft"], chain=Chain(temp=1.0),
                   draft_max=3, draft_min=3)  # fmt: skip
    first, second, other = (complete(replace(one, seed=s)) for s in (1, 1, 2))
    assert first.token_ids == second.token_ids != other.token_ids
