"""A target with its drafter, checked and loaded: settings -> replies that stream.

Files and pair pass our own check before llama.cpp sees them, so what it would abort on is a
RefusedError instead.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self

import numpy as np

from gguftools.errors import RefusedError, UsageError
from gguftools.gguf.integrity import check_integrity
from gguftools.gguf.nextn import mtp_report
from gguftools.gguf.reader import Header
from gguftools.gguf.source import open_gguf
from gguftools.gguf.tensors import bytes_per_token
from gguftools.pairing.machine import ram_bytes
from gguftools.pairing.memory import kv_bytes_per_token
from gguftools.pairing.ranking import check_pair
from gguftools.speculative.chat import Prompter
from gguftools.speculative.context import Context
from gguftools.speculative.controller import Controller
from gguftools.speculative.drafters import ModelDrafter, MtpDrafter, common_prefix
from gguftools.speculative.drafting import Drafter
from gguftools.speculative.equality import Equality, compare_with_plain
from gguftools.speculative.llama import Model, usable_cores
from gguftools.speculative.ngram import NgramDrafter
from gguftools.speculative.reply import Engine, Reply
from gguftools.speculative.sampling import Chain

DrafterName = Literal["auto", "draft", "mtp", "ngram", "none"]
N_CTX_DEFAULT = 8192  # where neither the user nor a shorter training context says otherwise
DRAFT_MAX_LIMIT = 64


@dataclass(frozen=True, slots=True)
class Settings:
    """What to run and how; llama.cpp's names. n_ctx 0 = the model's own, at most 8192."""

    target: Path
    draft: Path | None = None
    drafter: DrafterName = "auto"
    draft_max: int = 8
    draft_min: int = 0
    draft_p_min: float = 0.0
    n_ctx: int = 0
    n_threads: int | None = None
    n_gpu_layers: int = -1
    n_gpu_layers_draft: int = -1
    chain: Chain = field(default_factory=Chain)
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What will be loaded: decided from headers alone."""

    target: Header
    drafter: Literal["draft", "mtp", "ngram", "none"]
    draft: Header | None  # a draft model, or the sidecar of an MTP head
    notes: tuple[str, ...]


def plan(settings: Settings) -> Plan:
    """Check the files and choose the drafter; RefusedError says which rule fails and where."""
    target = open_gguf(settings.target)
    _refuse_broken(target)
    report = mtp_report(target)
    if not report.loads:
        raise RefusedError(
            report.reason, where=target.path, hint=f"gguftools inspect {target.path}"
        )
    _refuse_large_context(target, settings.n_ctx)
    draft = open_gguf(settings.draft) if settings.draft is not None else None
    if draft is not None:
        _refuse_broken(draft)
    if report.state == "head-only":
        raise RefusedError(
            "it holds an MTP head without its trunk, so it cannot be the target",
            where=target.path,
            hint="give it as --draft to the trunk's file",
        )
    match settings.drafter:
        case "none" | "ngram":
            return Plan(target, settings.drafter, None, ())
        case "mtp":
            return _plan_mtp(target, draft)
        case "draft":
            if draft is None:
                raise UsageError(
                    "no draft model given",
                    where="--drafter draft",
                    hint="name one with --draft FILE",
                )
            return _plan_draft(target, draft)
        case "auto":
            return _plan_auto(target, draft)


def _plan_auto(target: Header, draft: Header | None) -> Plan:
    """An MTP head if it runs, else the given draft, else n-gram lookup."""
    report = mtp_report(target)
    if report.runnable:
        unused = "the target's own MTP head drafts; --drafter draft takes the given file instead"
        return Plan(target, "mtp", None, (unused,) if draft is not None else ())
    if draft is not None:
        return _plan_draft(target, draft)
    notes: tuple[str, ...] = ()
    if report.state not in ("none", "trunk-only"):
        notes = (f"the MTP head is not used: {report.reason}",)
    return Plan(target, "ngram", None, notes)


def _plan_mtp(target: Header, sidecar: Header | None) -> Plan:
    if sidecar is not None:
        return _plan_draft(target, sidecar, kind="draft-mtp")
    report = mtp_report(target)
    if not report.runnable:
        raise RefusedError(
            f"no MTP head to draft with: {report.reason}",
            where=target.path,
            hint=f"gguftools inspect {target.path}",
        )
    return Plan(target, "mtp", None, ())


def _plan_draft(target: Header, draft: Header, kind: str | None = None) -> Plan:
    pair = check_pair(target, draft)
    if pair.verdict == "blocked":
        raise RefusedError(
            pair.reason, where=draft.path, hint=f"gguftools pair {target.path} {draft.path}"
        )
    if kind is not None and pair.kind != kind:
        raise RefusedError(
            f"it is a {pair.kind} file, not an MTP head",
            where=draft.path,
            hint="leave --mtp away to draft with it",
        )
    if pair.commands["gguftools"] is None:
        raise RefusedError(
            f"{pair.kind} runs in llama-server only",
            where=draft.path,
            hint=pair.commands["llama-server"] or "",
        )
    drafter: Literal["draft", "mtp"] = "mtp" if pair.kind == "draft-mtp" else "draft"
    return Plan(target, drafter, draft, (pair.reason,) if pair.verdict == "poor" else ())


def _refuse_broken(header: Header) -> None:
    errors = [p for p in check_integrity(header) if p.severity == "error"]
    if errors:
        raise RefusedError(errors[0].message, where=header.path, hint=errors[0].hint)


def _refuse_large_context(header: Header, n_ctx: int) -> None:
    """llama.cpp does not fail on a context far beyond the memory: it works on it for hours."""
    need, ram = n_ctx * kv_bytes_per_token(header), ram_bytes()
    if ram is not None and need > ram:
        raise RefusedError(
            f"a context of {n_ctx} tokens needs {need / 1e9:.1f} GB for keys and values, "
            f"this machine has {ram / 1e9:.1f} GB",
            where=header.path,
            hint=f"-c {ram // 2 // max(kv_bytes_per_token(header), 1)} would fit",
        )


class Session:
    """A loaded target (and draft). Keeps the cache of the conversation between replies."""

    def __init__(self, settings: Settings, chosen: Plan) -> None:
        self.settings, self.plan = settings, chosen
        self.notes = list(chosen.notes)
        self.rng = np.random.default_rng(
            secrets.randbits(64) if settings.seed is None else settings.seed
        )
        self._stack = ExitStack()
        try:
            self._load()
        except BaseException:
            self._stack.close()
            raise

    @property
    def drafter_name(self) -> str:
        """draft, mtp, ngram or none."""
        return self.plan.drafter

    def _load(self) -> None:
        s = self.settings
        self.model = self._model(s.target, s.n_gpu_layers, load_mtp=self._own_head)
        n_ctx = s.n_ctx or min(self.model.n_ctx_train, N_CTX_DEFAULT)
        self.n_threads = s.n_threads or usable_cores()
        drafting = self.plan.drafter != "none"
        self.target = self._context(self.model, n_ctx, n_rollback=s.draft_max if drafting else 0)
        drafter = self._drafter()
        n_max = min(s.draft_max, drafter.n_max) if drafter is not None else 0
        self.engine = Engine(
            target=self.target,
            drafter=drafter,
            controller=Controller(n_max, min(s.draft_min, n_max), cost=self.predicted_cost()),
            chain=s.chain,
            rng=self.rng,
            prompter=Prompter(self.plan.target, self.model),
        )

    def predicted_cost(self) -> float | None:
        """A drafted token in plain decodes, by the bytes each reads; until it is measured."""
        if self.plan.drafter == "ngram":
            return 0.0
        if self.plan.drafter != "draft" or self.plan.draft is None:
            return None
        return bytes_per_token(self.plan.draft) / max(bytes_per_token(self.plan.target), 1)

    @property
    def _own_head(self) -> bool:
        return self.plan.drafter == "mtp" and self.plan.draft is None

    def _model(self, path: Path, n_gpu_layers: int, *, load_mtp: bool) -> Model:
        model = Model(path, n_gpu_layers=n_gpu_layers, load_mtp=load_mtp)
        self._stack.callback(model.close)
        return model

    def _context(
        self, model: Model, n_ctx: int, *, n_rollback: int = 0, mtp_of: Context | None = None
    ) -> Context:
        context = Context(
            model, n_ctx=n_ctx, n_threads=self.n_threads, n_rollback=n_rollback, mtp_of=mtp_of
        )
        self._stack.callback(context.close)
        return context

    def _drafter(self) -> Drafter | None:
        s, kind = self.settings, self.plan.drafter
        if kind == "none":
            return None
        if kind == "ngram":
            return NgramDrafter()
        model = self.model
        if self.plan.draft is not None:
            path = Path(self.plan.draft.path)
            model = self._model(path, s.n_gpu_layers_draft, load_mtp=kind == "mtp")
        if kind == "draft":
            context = self._context(model, self.target.n_ctx)
            return ModelDrafter(context, self.model.n_vocab, s.chain, s.draft_p_min, self.rng)
        context = self._context(model, self.target.n_ctx, mtp_of=self.target)
        return MtpDrafter(context, self.target, s.chain, s.draft_p_min, self.rng)

    def reply(
        self,
        messages: Sequence[dict[str, str]] | str,
        n_predict: int,
        *,
        raw: bool = False,
        stop: Sequence[str] = (),
    ) -> Reply:
        """Answer the messages (roles system, user, assistant), or continue a raw prompt.

        The reply ends before the first of the `stop` strings.
        """
        engine = self.engine
        ids = engine.prompter.prompt(messages, raw=raw)
        if len(ids) >= self.target.n_ctx:
            raise UsageError(
                f"the prompt has {len(ids)} tokens, the context holds {self.target.n_ctx}",
                where="-c",
                hint="raise -c or shorten the prompt",
            )
        self.target.rewind(min(common_prefix(self.target.tokens, ids), len(ids) - 1))
        engine.controller.new_reply()
        return Reply(engine, ids, n_predict, stop)

    def compare_with_plain(self, reply: Reply) -> Equality:
        """Decode a greedy reply again without drafts; the conversation is read anew after it."""
        if not self.settings.chain.greedy:
            raise UsageError("only greedy texts can be compared", where="--verify", hint="--temp 0")
        return compare_with_plain(self.engine, reply.prompt_ids, reply.token_ids)

    def close(self) -> None:
        """Free contexts, then models."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_session(settings: Settings) -> Session:
    """Check, load and make ready."""
    if not 0 <= settings.draft_min <= settings.draft_max <= DRAFT_MAX_LIMIT:
        raise UsageError(
            f"draft-min {settings.draft_min} and draft-max {settings.draft_max} must be ordered "
            f"and at most {DRAFT_MAX_LIMIT}",
            where="--draft-max",
        )
    return Session(settings, plan(settings))
