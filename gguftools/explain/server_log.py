"""The log of a llama-server as facts: what it started with, and what each request cost. Pure.

Lines as b11434 prints them, in tools/server/server-context.cpp, common/speculative.cpp and
src/llama-model*.cpp; `acc per pos` and `statistics` need `-lv 4`, tensors `-lv 5`.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field, replace

from gguftools.explain.facts import Counts, Facts, add
from gguftools.explain.server_texts import rounds
from gguftools.server.failure import failure, why_off

LINE_MAX = 300  # of a line that is shown
_LINE_READ = 4096  # of any line: what is longer is a prompt
_N_BEGIN, _N_END = 2000, 3000  # lines that say why it does not run
# What the lines that are read have in them: a quick look saves the patterns below on all others.
_WORDS = (
    "eval time", "draft acceptance", "acc per pos", "statistics", "loading ", "creating MTP",
    "adding speculative", "n_max=", "cache_k=", "n_slots", "offloaded", "buffer size", "arch ",
    "temp = ", "build", "llama-server", "unused tensor", "overridden", "process()",
)  # fmt: skip
_N = r"(\d{1,12})"
_X = r"(\d{1,12}(?:\.\d{1,12})?)"
_PROMPT = re.compile(rf"prompt eval time = +{_X} ms / +{_N} tokens")
_EVAL = re.compile(rf"(?<!prompt) eval time = +{_X} ms / +{_N} (?:tokens|runs)")
_ACCEPTANCE = re.compile(
    rf"draft acceptance(?: rate)? = +{_X} \( *{_N} accepted / +{_N} generated\)"
    rf"(?:, mean len = +{_X})?"
)
_BY_POSITION = re.compile(r"acc per pos = \(([0-9., ]{1,1000})\)")
_STATISTICS = re.compile(rf"statistics +([a-z0-9-]{{1,32}}): .*dur\(b,g,a\) = {_X}, {_X}, {_X} ms")
_ADDING = re.compile(r"adding speculative implementation '([a-z0-9-]{1,32})'")
_SETTINGS = re.compile(rf"- n_max=(\d{{1,6}}), n_min=(\d{{1,6}}), p_min={_X}")
_CACHE = re.compile(r"gpu_layers=-?\d+, cache_k=(\w{1,16}), cache_v=(\w{1,16})")
_SLOTS = re.compile(rf"initializing, n_slots = {_N}")
_LAYERS = re.compile(rf"offloaded {_N}/{_N} layers to GPU")
_BACKEND = re.compile(r"(CUDA|ROCm|HIP|Vulkan|Metal|MTL|SYCL)\d* +model buffer size")
_ARCHITECTURE = re.compile(r"print_info: arch +=+ ([\w-]{1,64})")
_BUILD = re.compile(r"\bbuild(?:_info)?\b\W{0,8}\bb?(\d{4,6})\b")
_TEMP = re.compile(rf"top_n_sigma = .* temp = {_X}")
_TARGET = re.compile(r"loading model '([^']{1,1000})'")
_DRAFT = re.compile(r"loading draft model '([^']{1,1000})'")
_EXPERT_IN_RAM = re.compile(r"tensor blk\.\d+\.ffn_\w*exps\S* .*overridden to \S*CPU")
_UNUSED_HEAD = re.compile(r"model has unused tensor blk\.\d+\.nextn\.")
_OWN_HEAD = "creating MTP draft context against the target model"
_COMMAND = re.compile(r"(?:^|[\s/])llama-server(?:\.exe)?\s+(-.*)")
_STALE = re.compile(r"process\(\) (?:did not run|hook may not have run)")
_ENDED = re.compile(
    r"exiting due to|failed to load model|GGML_ASSERT\(|error(?:: invalid argument| while handling)"
)
_STAMP = re.compile(r"^[\d.]{8,20} [A-Z] ")
_FLAGS = {
    "--spec-type": "drafter", "-md": "draft", "--model-draft": "draft", "-m": "target",
    "--spec-draft-model": "draft", "--model": "target", "--temp": "temp", "-np": "n_slots",
    "--parallel": "n_slots", "--spec-draft-n-max": "draft_max", "--draft-max": "draft_max",
    "--spec-draft-n-min": "draft_min", "--spec-draft-p-min": "draft_p_min",
    "--draft-p-min": "draft_p_min", "-sm": "split_mode", "--split-mode": "split_mode",
    "-ctkd": "draft_cache", "--spec-draft-type-k": "draft_cache",
}  # fmt: skip


def looks_like_log(text: str) -> bool:
    """Whether a llama-server, or another of llama.cpp's programs, wrote this."""
    names = ("llama_model_loader", "eval time =", "srv  ", "slot ", "print_info:", "llama_context")
    return any(name in text for name in names) or _COMMAND.search(text) is not None


@dataclass(slots=True)
class _Log:
    """What was read so far; the request at hand is counted when the next one begins."""

    facts: Facts = field(default_factory=lambda: Facts(sources=("server log",)))
    requests: list[Counts] = field(default_factory=list)
    n_loaded: int = 0
    n_experts: int = 0
    n_unused: int = 0
    seconds_draft: dict[str, float] = field(default_factory=dict)

    def learn(self, **values: object) -> None:
        """What is said again later is not news."""
        known = {name for name in values if getattr(self.facts, name) is not None}
        new = {name: value for name, value in values.items() if name not in known}
        if new:
            self.facts = replace(self.facts, **new)  # type: ignore[arg-type]


def read_log(text: str) -> Facts:
    """The facts of a log."""
    log = _Log()
    lines = [line[:_LINE_READ] for line in text.splitlines()]
    for line in lines:
        if any(word in line for word in _WORDS):
            _read_request(log, line)
            _read_start(log, line)
    long = len(lines) > _N_BEGIN + _N_END
    ends = [*lines[:_N_BEGIN], *lines[-_N_END:]] if long else lines
    log.learn(
        engine="llama-server",
        **_end("\n".join(ends)),
        n_cpu_experts=log.n_experts or None,
        n_head_unused=log.n_unused or None,
    )
    counts = _counts(log)
    if counts["drafted"] is not None and log.facts.target is not None and not log.facts.draft:
        log.learn(drafter="ngram")  # neither a draft model nor a head was loaded
    return replace(log.facts, **counts)  # type: ignore[arg-type]


def _end(text: str) -> dict[str, str]:
    """Why it ended or does not draft, in the words of the table that `serve` has for it."""
    if "listening on" in text:
        off = why_off(text)
        return {"off": off} if off else {}
    if _ENDED.search(text) is None:
        return {}
    found = failure(text, None)
    return {"failure": found.what} | ({"failure_hint": found.hint} if found.hint else {})


def _read_request(log: _Log, line: str) -> None:
    if match := _PROMPT.search(line):
        log.requests.append(
            Counts(n_replies=1, n_prompt=int(match[2]), seconds_prompt=float(match[1]) / 1e3)
        )
    elif (match := _EVAL.search(line)) and log.requests:
        log.requests[-1] = replace(
            log.requests[-1], n_tokens=int(match[2]), seconds_decode=float(match[1]) / 1e3
        )
    elif (match := _ACCEPTANCE.search(line)) and log.requests:
        n_accepted, n_draft = int(match[2]), int(match[3])
        mean = float(match[4]) if match[4] else 0.0
        n_drafted = round(n_accepted / (mean - 1.0)) if mean > 1.0 else None
        log.requests[-1] = replace(
            log.requests[-1], n_draft=n_draft, n_accepted=n_accepted, n_rounds_drafted=n_drafted
        )
    elif (match := _BY_POSITION.search(line)) and log.requests:
        n = log.requests[-1].n_rounds_drafted
        rates = [float(r) for r in match[1].split(",") if re.fullmatch(_X, r.strip())]
        kept = None if n is None else tuple(round(n * min(rate, 1.0)) for rate in rates)
        log.requests[-1] = replace(log.requests[-1], accepted_by_position=kept)
    elif match := _STATISTICS.search(line):
        log.seconds_draft[match[1]] = float(match[3]) / 1e3  # since the start


def _read_start(log: _Log, line: str) -> None:
    if match := _TARGET.search(line):
        log.learn(target=match[1])
    elif match := _DRAFT.search(line):
        log.learn(draft=match[1])
    elif _OWN_HEAD in line:
        log.learn(drafter="draft-mtp")
    elif match := _ADDING.search(line):
        log.learn(drafter=match[1], speculative=True)
    elif match := _SETTINGS.search(line):
        log.learn(draft_max=int(match[1]), draft_min=int(match[2]), draft_p_min=float(match[3]))
    elif match := _CACHE.search(line):
        log.learn(draft_cache=match[1])
    elif match := _SLOTS.search(line):
        log.learn(n_slots=int(match[1]))
    elif match := _LAYERS.search(line):
        names = ("n_layers", "n_draft_layers")[min(log.n_loaded, 1)]
        log.n_loaded += 1
        log.learn(**{f"{names}_gpu": int(match[1]), f"{names}_all": int(match[2])})
    elif match := _BACKEND.search(line):
        log.learn(backend={"MTL": "metal"}.get(match[1], match[1].lower()))
    elif match := _ARCHITECTURE.search(line):
        log.learn(architecture=match[1])
    elif match := _TEMP.search(line):
        log.learn(temp=float(match[1]))
    elif match := _BUILD.search(line):
        log.learn(build=f"b{match[1]}")
    elif match := _COMMAND.search(line):
        _read_command(log, match[1])
    log.n_experts += bool(_EXPERT_IN_RAM.search(line))
    log.n_unused += bool(_UNUSED_HEAD.search(line))
    if _STALE.search(line):
        log.learn(stale=_STAMP.sub("", line.strip())[:LINE_MAX])


def _read_command(log: _Log, arguments: str) -> None:
    """The flags of a command line that was written into the log."""
    try:
        words = shlex.split(arguments[: LINE_MAX * 10])
    except ValueError:
        return
    for flag, value in zip(words, [*words[1:], ""], strict=True):
        name = _FLAGS.get(flag)
        if flag in ("-cmoe", "--cpu-moe", "-ncmoe", "--n-cpu-moe"):
            log.n_experts += 1
        elif name in ("n_slots", "draft_max", "draft_min") and re.fullmatch(r"\d{1,6}", value):
            log.learn(**{name: int(value)})
        elif name in ("temp", "draft_p_min") and re.fullmatch(_X, value):
            log.learn(**{name: float(value)})
        elif name in ("target", "draft", "drafter", "draft_cache", "split_mode"):
            log.learn(**{name: value})


def _counts(log: _Log) -> dict[str, Counts | None]:
    """The requests, as drafted ones if anything was drafted in any of them."""
    done = [_with_rounds(r) for r in log.requests if r.n_tokens]
    if not any(r.n_draft for r in done):
        return {"drafted": None, "plain": add(done)}
    drafted = add(_nothing_drafted(r) for r in done)
    assert drafted is not None
    seconds = sum(log.seconds_draft.values())
    if seconds and drafted.seconds_decode and seconds < drafted.seconds_decode:
        drafted = replace(
            drafted, seconds_draft=seconds, seconds_verify=drafted.seconds_decode - seconds
        )
    return {"drafted": drafted, "plain": None}


def _with_rounds(r: Counts) -> Counts:
    return replace(r, n_rounds=rounds(r.n_tokens, r.n_accepted))


def _nothing_drafted(r: Counts) -> Counts:
    """A request without a draft says nothing of drafts: none were made."""
    if r.n_draft is not None:
        return r
    return replace(r, n_draft=0, n_accepted=0, n_rounds_drafted=0, accepted_by_position=())
