"""What each cause looks like in the facts: numbers if it is there, None if not. Pure."""

from __future__ import annotations

from itertools import pairwise

from gguftools.explain.facts import Facts
from gguftools.explain.rates import (
    acceptance,
    expected,
    mean_round,
    prompt_rate,
    rate,
    speeds_by_length,
    speedup,
    survival,
)

Numbers = dict[str, float | str]

GAIN = 1.03  # less is within what a clock says of equal runs
TEMP_HIGH = 0.7
NGRAM = ("ngram", "ngram-mod", "ngram-simple", "ngram-cache", "ngram-map-k", "ngram-map-k4v")
N_SHORT = 32  # tokens
N_DRAFT_MIN = 0.2  # a round: with less, drafting is as good as off


def slower(f: Facts) -> bool | None:
    """Whether it is no faster than plain decoding; None if that cannot be told."""
    if (measured := speedup(f)) is not None:
        return measured < GAIN
    r = mean_round(f)
    return True if r is not None and r.speedup < 1.0 else None


def ran_plain(f: Facts) -> Numbers | None:
    if f.engine != "gguftools" or f.drafted is not None or f.plain is None:
        return None
    return {"n_tokens": f.plain.n_tokens or 0}


def controller_off(f: Facts) -> Numbers | None:
    """Our controller seldom drafted."""
    d = f.drafted
    if f.engine != "gguftools" or d is None or not d.n_rounds or d.n_rounds_drafted is None:
        return None
    fixed = f.draft_max is not None and f.draft_max == f.draft_min
    if fixed or f.drafter in NGRAM or d.n_rounds_drafted > 0.2 * d.n_rounds:
        return None
    return {"n_rounds": d.n_rounds, "n_drafted": d.n_rounds_drafted}


def below_break_even(f: Facts) -> Numbers | None:
    """Acceptance too low for what a round costs."""
    r = mean_round(f)
    if r is None or not slower(f) or not r.acceptance < r.break_even <= 1.0:
        return None
    least = "" if r.exact else "at least "
    return {
        "acceptance": r.acceptance, "break_even": r.break_even, "n_draft": r.n_draft,
        "cost": r.cost, "tokens": r.tokens, "least": least,
    }  # fmt: skip


def hopeless_round(f: Facts) -> Numbers | None:
    """A round that loses even if the whole draft is kept."""
    r = mean_round(f)
    if r is None or not slower(f) or r.break_even <= 1.0 or r.n_draft < N_DRAFT_MIN:
        return None
    least = "" if r.exact else "at least "
    return {"n_draft": r.n_draft, "cost": r.cost, "most": r.n_draft + 1.0, "least": least}


def low_acceptance(f: Facts) -> Numbers | None:
    """Low whatever the costs are, where those are not known."""
    a = acceptance(f.drafted)
    return {"acceptance": a} if a is not None and a < 0.4 and mean_round(f) is None else None


def hot(f: Facts) -> Numbers | None:
    a = acceptance(f.drafted)
    if f.temp is None or f.temp < TEMP_HIGH or a is None or a > 0.6 or slower(f) is False:
        return None
    return {"temp": f.temp, "acceptance": a}


def heavy_draft(f: Facts) -> Numbers | None:
    """Drafting takes the larger part of what a round costs beyond a plain decode."""
    r = mean_round(f)
    if r is None or r.draft is None or r.verify is None or slower(f) is False:
        return None
    if empty_drafts(f):  # what p-min throws away is drafted too, but not counted
        return None
    drafting = r.draft * r.n_draft
    if r.draft < 0.15 or drafting < 0.5 * (drafting + r.verify - 1.0):
        return None
    return {"each": r.draft, "drafting": drafting / r.cost, "acceptance": r.acceptance}


def steep_verify(f: Facts) -> Numbers | None:
    """Verified rows cost too much, but no more than one by one."""
    r = mean_round(f)
    if r is None or not r.exact or r.verify is None or r.draft is None or slower(f) is False:
        return None
    slope = (r.verify - 1.0) / r.n_draft
    if not 0.25 <= slope < 1.0 or slope < r.draft:
        return None
    return {"slope": slope, "verify": r.verify, "rows": r.n_draft + 1.0}


def paging(f: Facts) -> Numbers | None:
    """A pass over several rows that takes longer than the rows one by one: memory, not arithmetic.

    Or a length at which passes suddenly take twice as long as with a row less.
    """
    passes = f.passes or ()
    for (n0, t0), (n1, t1) in pairwise(passes):
        if n0 > 1 and n1 == n0 + 1 and t1 > 2.0 * t0 > 0.0:
            return {"rows": n1, "ratio": t1 / t0, "versus": f"{n0} rows"}
    r = mean_round(f)
    if r is None or not r.exact or slower(f) is False:
        return None
    cost = r.cost if r.verify is None else r.verify
    alone = r.n_draft + 1.0 if r.verify is not None else 1.25 * (r.n_draft + 1.0)
    if r.n_draft < 0.5 or cost < alone:
        return None
    return {"rows": r.n_draft + 1.0, "ratio": cost, "versus": "one row"}


def wrong_length(f: Facts) -> Numbers | None:
    """Another fixed length would be faster: by the arms of a bench, else by costs."""
    fixed = [a for a in f.arms or () if a.draft_max]
    now = speedup(f)
    if f.arms and fixed and now is not None:
        best = max(fixed, key=lambda a: a.speedup)
        if best.speedup < 1.08 * now or best.speedup < GAIN:
            return None
        return {"n_now": f.arms[0].name, "now": now, "n_best": best.draft_max or 0,
                "best": best.speedup}  # fmt: skip
    r, speeds = mean_round(f), speeds_by_length(f)
    if _adapts(f) or r is None or not speeds or not r.exact:
        return None
    n_best = max(speeds, key=lambda n: speeds[n])
    if speeds[n_best] < GAIN or speeds[n_best] < 1.08 * r.speedup:
        return None
    return {"n_now": f"{r.n_draft:.1f}", "now": r.speedup, "n_best": n_best,
            "best": speeds[n_best]}  # fmt: skip


def no_length_pays(f: Facts) -> Numbers | None:
    """Not even the best length would be faster than plain decoding."""
    r, speeds = mean_round(f), speeds_by_length(f)
    if f.arms and len(f.arms) > 2:
        best = max(f.arms, key=lambda a: a.speedup)
        return {"best": best.speedup, "n_best": best.name} if best.speedup < GAIN else None
    if r is None or not r.exact or not speeds or slower(f) is False:
        return None
    n_best = max(speeds, key=lambda n: speeds[n])
    return {"best": speeds[n_best], "n_best": n_best} if speeds[n_best] < GAIN else None


def deep_rejects(f: Facts) -> Numbers | None:
    """A fixed length of which the far end is hardly ever kept, where costs are not known."""
    kept, r = survival(f.drafted), mean_round(f)
    if _adapts(f) or not kept or (r is not None and r.exact):
        return None
    useful = sum(s >= 0.15 for s in kept)
    if len(kept) < 4 or useful > 0.6 * len(kept):
        return None
    rest = expected(kept, len(kept)) - expected(kept, useful)
    dead = len(kept) - useful
    return {"n_max": len(kept), "dead": dead, "rest": rest, "n_best": max(1, useful)}


def starved(f: Facts) -> Numbers | None:
    """Drafts that are short although what is drafted is kept: p_min cuts them."""
    d, a = f.drafted, acceptance(f.drafted)
    if d is None or a is None or not d.n_rounds or f.drafter in NGRAM or slower(f) is False:
        return None
    length = (d.n_draft or 0) / d.n_rounds
    p_min = f.draft_p_min
    if not p_min or a < 0.85 or length > 1.2 or empty_drafts(f):
        return None
    return {"length": length, "acceptance": a, "p_min": p_min}


def empty_drafts(f: Facts) -> Numbers | None:
    """Rounds of a llama-server in which nothing was drafted."""
    d = f.drafted
    if f.engine != "llama-server" or d is None or not d.n_rounds or d.n_rounds_drafted is None:
        return None
    share = 1.0 - d.n_rounds_drafted / d.n_rounds
    if f.drafter in NGRAM or share < 0.3 or slower(f) is False:
        return None
    p_min = f"p-min {f.draft_p_min:g}" if f.draft_p_min else "p-min"
    return {"share": share, "n_rounds": d.n_rounds, "p_min": p_min}


def no_repetition(f: Facts) -> Numbers | None:
    """N-gram lookup that found nothing to repeat."""
    d = f.drafted
    if f.drafter not in NGRAM or slower(f) is False:
        return None
    if d is None:
        return {"share": 0.0} if f.plain is not None else None
    if not d.n_rounds or d.n_rounds_drafted is None or d.n_rounds_drafted > 0.2 * d.n_rounds:
        return None
    return {"share": d.n_rounds_drafted / d.n_rounds}


def prefill_tax(f: Facts) -> Numbers | None:
    """Reading the prompt is slower with the drafter: what decoding gains must earn it back."""
    plain, drafted = prompt_rate(f.plain), prompt_rate(f.drafted)
    if plain is None or drafted is None or plain < 1.1 * drafted:
        return None
    assert f.drafted is not None
    n_prompt = (f.drafted.n_prompt or 0) / (f.drafted.n_replies or 1)
    if n_prompt < 64:  # a few tokens take as long as the clock and the cache let them
        return None
    slow, fast = rate(f.plain), rate(f.drafted)
    earned = 1.0 / slow - 1.0 / fast if slow and fast else 0.0
    lost = n_prompt * (1.0 / drafted - 1.0 / plain)
    when = f"a reply earns it back after {lost / earned:.0f} tokens" if earned > 0 else (
        "and decoding does not earn it back"
    )  # fmt: skip
    return {"tax": plain / drafted - 1.0, "n_prompt": n_prompt, "seconds": lost, "when": when}


def prompt_bound(f: Facts) -> Numbers | None:
    """Most of the time goes into the prompt, which no draft shortens."""
    d = f.drafted
    if d is None or not d.seconds_prompt or d.seconds_prompt < 1.0 or not d.seconds_decode:
        return None
    share = d.seconds_prompt / (d.seconds_prompt + d.seconds_decode)
    return {"share": share, "limit": 1.0 / share} if share > 0.5 else None


def looping(f: Facts) -> Numbers | None:
    a = acceptance(f.drafted)
    if f.repetition is None or f.repetition < 0.5 or a is None:
        return None
    return {"share": f.repetition, "acceptance": a}


def short_reply(f: Facts) -> Numbers | None:
    n = f.drafted.n_tokens if f.drafted is not None else None
    return {"n": n} if n is not None and n < N_SHORT else None


def own_time(f: Facts) -> Numbers | None:
    """Seconds of decoding that were neither drafting nor verifying."""
    d = f.drafted
    if d is None or f.engine != "gguftools" or not d.seconds_decode or d.seconds_draft is None:
        return None
    share = 1.0 - (d.seconds_draft + (d.seconds_verify or 0.0)) / d.seconds_decode
    return {"share": share} if share > 0.15 else None


def _adapts(f: Facts) -> bool:
    """Whether the length is chosen while it runs: ours is, unless it was fixed."""
    fixed = f.draft_max is not None and f.draft_max == f.draft_min
    return f.engine == "gguftools" and not fixed
