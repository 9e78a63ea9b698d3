"""A target with its drafter, checked and loaded: settings -> replies that stream."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import numpy as np

from gguftools.errors import UsageError
from gguftools.gguf.tensors import bytes_per_token
from gguftools.speculative.chat import Prompter
from gguftools.speculative.context import Context
from gguftools.speculative.controller import Controller
from gguftools.speculative.drafters import ModelDrafter, MtpDrafter, common_prefix
from gguftools.speculative.drafting import Drafter
from gguftools.speculative.equality import Equality, compare_with_plain
from gguftools.speculative.llama import Model, usable_cores
from gguftools.speculative.ngram import NgramDrafter
from gguftools.speculative.plan import Plan, Settings, plan
from gguftools.speculative.reply import Engine, Reply

N_CTX_DEFAULT = 8192  # where neither the user nor a shorter training context says otherwise


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
    return Session(settings, plan(settings))
