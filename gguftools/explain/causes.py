"""Why a pair is not faster: one row per cause, the root of the trouble before what comes of it.

A row is a name, how bad it is, what it looks like in the facts, a sentence with the numbers, what
to try next, and where it was seen. Sentences and commands are format strings over the numbers and
over `words`. C numbers are public field reports and F numbers published figures, as elsewhere in
this house (docs/accuracy.md has the latter); llama.cpp is b11434.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from gguftools.explain import signs, signs_setup
from gguftools.explain.facts import Facts
from gguftools.explain.signs import Numbers

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Cause:
    """A row. `error`: no draft at all; `warning`: it costs speed; `info`: good to know."""

    code: str
    severity: Severity
    sign: Callable[[Facts], Numbers | None]
    message: str
    hint: str
    source: str


CAUSES: tuple[Cause, ...] = (
    Cause(
        "pair-blocked", "error", signs_setup.blocked_pair,
        "llama.cpp will not draft with this pair ({rule}): {reason}",
        "gguftools pair {target}   finds drafts that fit",
        "C01 to C19; common/speculative.cpp",
    ),
    Cause(
        "vocabulary", "error", signs_setup.vocabularies_differ,
        "the server runs without the draft: {reason}",
        "gguftools pair {target} {draft}   names the token that differs",
        "C07, C08, C12; server-context.cpp goes on without speculation",
    ),
    Cause(
        "draft-refused", "error", signs_setup.draft_refused,
        "the server runs without the draft: {reason}",
        "gguftools pair {target} {draft}   says which rule it breaks",
        "tools/server/server-context.cpp",
    ),
    Cause(
        "head-lost", "error", signs_setup.head_lost,
        "the MTP head is not there: {reason}",
        "gguftools inspect {target}   says what is missing; --reference CHECKPOINT says where",
        "C20 to C29; llama-context.cpp, src/models",
    ),
    Cause(
        "start-failed", "error", signs_setup.failed_start,
        "the server did not start: {reason}",
        "{next}",
        "tools/server/server.cpp exits with 1",
    ),
    Cause(
        "memory", "error", signs_setup.no_memory,
        "it does not fit: {reason}",
        "gguftools pair {target} {draft} -c {n_ctx}",
        "C74 to C82",
    ),
    Cause(
        "head-idle", "warning", signs_setup.head_idle,
        "the file has an MTP head that was not loaded ({n} tensors left out): nobody asked for it",
        "llama-server -m {target} --spec-type draft-mtp --spec-draft-n-max 3",
        "C49; llama-model-loader.cpp prints it when load_mtp is false",
    ),
    Cause(
        "speculation-off", "warning", signs_setup.never_drafted,
        "{n_tokens} tokens were written and none was drafted: speculation is off",
        "llama-server -m {target} {server_drafter} --spec-draft-n-max 3   (--spec-type is none by "
        "default, a draft file alone does nothing)",
        "C46, C47, C49, C50; common/arg.cpp",
    ),
    Cause(
        "plain", "warning", signs.ran_plain,
        "these {n_tokens} tokens were decoded plainly: there was no drafter",
        "gguftools pair {target}   says which draft to use",
        "gguftools run --no-draft",
    ),
    Cause(
        "paging", "warning", signs.paging,
        "a pass over {rows:.2g} rows takes {ratio:.1f} times as long as over {versus}: memory is "
        "paged, state is copied, or something else keeps the processor",
        "gguftools pair {target} {draft}   says what fits; then a smaller -c, a lower "
        "{n_max_flag}, or a smaller quantization",
        "C79, C134, F103; server-context.cpp restores a checkpoint",
    ),
    Cause(
        "acceptance", "warning", signs.below_break_even,
        "{acceptance:.0%} of drafted tokens are accepted, and {least}{break_even:.0%} are needed "
        "here: a round writes {tokens:.2f} tokens and costs {least}{cost:.2f} plain decodes",
        "gguftools pair {target} --measure   looks for a draft that fits better",
        "break-even (R - 1) / n: C53, C57",
    ),
    Cause(
        "round-cost", "warning", signs.hopeless_round,
        "no acceptance is enough: a round drafts {n_draft:.1f} tokens and costs {least}{cost:.2f} "
        "plain decodes, but writes {most:.1f} tokens at most",
        "gguftools pair {target} --measure   looks for a cheaper draft",
        "break-even (R - 1) / n above 1: C55, C62",
    ),
    Cause(
        "acceptance-low", "warning", signs.low_acceptance,
        "only {acceptance:.0%} of drafted tokens are accepted; with a plain run beside it explain "
        "can say how many are needed here",
        "gguftools explain REPORT PLAIN_REPORT   (a run with --no-draft, same prompt)",
        "C52, C57",
    ),
    Cause(
        "temperature", "warning", signs.hot,
        "sampled at temperature {temp:.2g}: the target often picks what no draft can foresee "
        "({acceptance:.0%} accepted)",
        "{again} --temp 0   shows what it costs{sampling}",
        "C95; common/sampling.cpp",
    ),
    Cause(
        "draft-heavy", "warning", signs.heavy_draft,
        "a drafted token costs {each:.2f} of a plain decode, and drafting takes {drafting:.0%} of "
        "a round: that is too dear for this target",
        "gguftools pair {target}   ranks smaller ones; {again_ngram} drafts for nothing",
        "C56, C71, C136",
    ),
    Cause(
        "verify-slope", "warning", signs.steep_verify,
        "each further row of a pass costs {slope:.2f} of a plain decode ({rows:.1f} rows: "
        "{verify:.2f}): batches are not cheap on this machine",
        "{n_max_flag} 1, or no draft; more threads, another backend or another quantization make "
        "rows cheaper",
        "C53, C55, C61, C62, C137",
    ),
    Cause(
        "no-length-pays", "warning", signs.no_length_pays,
        "no draft length is faster than plain decoding here: the best, {n_best}, makes {best:.2f}x",
        "gguftools pair {target} --measure   tries other drafts; --no-draft is the faster choice "
        "until then",
        "C55, C58, C62",
    ),
    Cause(
        "n-max", "warning", signs.wrong_length,
        "drafts of {n_now} make {now:.2f}x, drafts of {n_best} should make {best:.2f}x",
        "{n_max_flag} {n_best}",
        "C52, C53, C134",
    ),
    Cause(
        "n-max-deep", "warning", signs.deep_rejects,
        "of {n_max} drafted tokens the last {dead} are nearly always refused: they bring "
        "{rest:.2f} tokens a round",
        "{n_max_flag} {n_best}",
        "C52, C53",
    ),
    Cause(
        "p-min", "warning", signs.starved,
        "{acceptance:.0%} of drafted tokens are accepted but a round drafts only {length:.1f}: "
        "p-min {p_min:g} ends drafts that would have been right",
        "{p_min_flag} 0, with a lower {n_max_flag} against long wrong drafts",
        "F022 to F025 (0.85 instead of 0: 96 for 135 tokens/s); speculative.cpp:421",
    ),
    Cause(
        "empty-drafts", "warning", signs.empty_drafts,
        "{share:.0%} of {n_rounds} rounds had no draft: {p_min} ended it at once, n-min threw it "
        "away, or lookup found nothing",
        "--spec-draft-p-min 0 --spec-draft-n-min 0",
        "speculative.cpp:468; server-context.cpp counts only rounds with a draft",
    ),
    Cause(
        "no-repetition", "info", signs.no_repetition,
        "n-gram lookup found something to repeat in {share:.0%} of the rounds: this text does not "
        "repeat itself",
        "gguftools pair {target}   finds a draft model or an MTP head",
        "ngram-mod needs 24 tokens that match: common/arg.cpp",
    ),
    Cause(
        "controller-off", "info", signs.controller_off,
        "drafts did not pay, so that all but {n_drafted} of {n_rounds} rounds were plain decoding",
        "gguftools pair {target} --measure   tries other drafts",
        "docs/controller.md",
    ),
    Cause(
        "prefill-tax", "warning", signs.prefill_tax,
        "reading the prompt takes {tax:.0%} longer with the drafter: {seconds:.2f} s of "
        "{n_prompt:.0f} tokens, {when}",
        "draft for long replies and plain for short ones; one GPU instead of a layer split",
        "C67, C133",
    ),
    Cause(
        "prompt-bound", "info", signs.prompt_bound,
        "{share:.0%} of the time is reading the prompt, which no draft shortens: at most "
        "{limit:.2f}x for the whole request",
        "keep the prompt in the cache: gguftools chat, or llama-server's cache_prompt",
        "C133",
    ),
    Cause(
        "experts-on-cpu", "warning", signs_setup.cpu_experts,
        "experts are in RAM ({n} tensors or flags): each row of a pass reads other ones",
        "{n_max_flag} 1, or fewer layers under --n-cpu-moe",
        "C55, C59; llama.cpp issue 14132 has a curve",
    ),
    Cause(
        "partial-offload", "warning", signs_setup.partial_offload,
        "only {n} of {all} layers are on the GPU: passes are bound by the CPU",
        "a smaller quantization instead of fewer layers: gguftools pair {target} {draft}",
        "C80, F064 (60 layers: 0.81x)",
    ),
    Cause(
        "draft-on-cpu", "warning", signs_setup.draft_on_cpu,
        "{n} of the draft's {all} layers are on the GPU: the draft goes there first",
        "-ngld 99",
        "C54, C71",
    ),
    Cause(
        "draft-cache-stale", "warning", signs_setup.stale_draft_cache,
        "the draft missed part of the prompt: {reason}",
        "restart the server, without slot restore or cache reuse",
        "C91, C92; common/speculative.cpp",
    ),
    Cause(
        "slots", "warning", signs_setup.several_slots,
        "{n} slots share each pass: drafting is for one stream",
        "-np 1, or no draft for several users",
        "C68, F080; server.cpp: -np is 4 by default",
    ),
    Cause(
        "predicted-loss", "warning", signs_setup.predicted_loss,
        "the best candidate is predicted at {speedup:.2f}x ({why})",
        "gguftools pair {target} --measure   asks the machine itself",
        "docs/accuracy.md",
    ),
    Cause(
        "own-time", "info", signs.own_time,
        "{share:.0%} of decoding was neither drafting nor verifying",
        "greedy sampling (--temp 0) and fewer penalties are cheaper; report it if it stays",
        "docs/benchmarks.md",
    ),
    Cause(
        "looping", "info", signs.looping,
        "{share:.0%} of the text repeats itself: its acceptance ({acceptance:.0%}) is that of a "
        "loop, and so is its speed",
        "measure with another prompt, or --repeat-penalty 1.1",
        "C73",
    ),
    Cause(
        "short", "info", signs.short_reply,
        "{n} tokens are too few to measure by",
        "-n 200",
        "docs/benchmarks.md: a controller learns in its first reply",
    ),
)  # fmt: skip


def words(f: Facts) -> Numbers:
    """What commands are made of: names as the files gave them, flags of the engine at hand."""
    target, draft = shlex.quote(f.target or "TARGET"), shlex.quote(f.draft or "DRAFT")
    server = f.engine == "llama-server"
    drafter = "--mtp" if f.drafter in ("mtp", "draft-mtp") and not f.draft else f"--draft {draft}"
    if f.drafter in signs.NGRAM:
        drafter = "--ngram"
    kind = f.drafter or ("draft-simple" if f.draft else "draft-mtp")
    greedy_drafts = "; --spec-draft-sampling probabilistic accepts more of them"
    return {
        "target": target,
        "draft": draft if f.draft else "" if f.drafter in ("mtp", "draft-mtp") else draft,
        "n_max_flag": "--spec-draft-n-max" if server else "--draft-max",
        "p_min_flag": "--spec-draft-p-min" if server else "--draft-p-min",
        "again": f"gguftools run {target} {drafter}",
        "again_ngram": f"gguftools run {target} --ngram",
        "server_drafter": f"--spec-type {kind}" + (f" -md {draft}" if f.draft else ""),
        "sampling": greedy_drafts if server else "",
    }
