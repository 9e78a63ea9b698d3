"""A target with its drafter, checked and loaded: settings -> replies that stream."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Self

from gguftools.errors import UsageError
from gguftools.pairing.kv_cache import cache_type
from gguftools.pairing.machine import usable_cores
from gguftools.speculative.chat import Prompter
from gguftools.speculative.context import Context
from gguftools.speculative.controller import Controller
from gguftools.speculative.devices import device_array, split_mode_id
from gguftools.speculative.drafters import ModelDrafter, MtpDrafter
from gguftools.speculative.drafting import Drafter
from gguftools.speculative.equality import Equality, compare_with_plain
from gguftools.speculative.excerpt import common_prefix
from gguftools.speculative.ledger import Ledger
from gguftools.speculative.llama import Model
from gguftools.speculative.loop import Arm, shift_length
from gguftools.speculative.ngram import N_MAX, NgramDrafter
from gguftools.speculative.plan import Plan, Settings, plan
from gguftools.speculative.reply import Engine, Reply
from gguftools.speculative.sampling import Chain

N_CTX_DEFAULT = 8192  # where neither the user nor a shorter training context says otherwise


class Session:
    """A loaded target (and draft). Keeps the cache of the conversation between replies."""

    def __init__(self, settings: Settings, chosen: Plan) -> None:
        self.settings, self.plan = settings, chosen
        self.notes = list(chosen.notes)
        self.rng = Random(secrets.randbits(64) if settings.seed is None else settings.seed)
        self._stack = ExitStack()
        try:
            self._load()
        except BaseException:
            self._stack.close()
            raise

    @property
    def drafter_name(self) -> str:
        """draft, mtp, ngram or none; draft+ngram or mtp+ngram where lookup goes first."""
        return self.plan.drafter + ("+ngram" if self.plan.ngram_first else "")

    @property
    def draft_max(self) -> int:
        """The longest draft."""
        return self.plan.draft_max

    def _load(self) -> None:
        s = self.settings
        self.model = self._model(s.target, s.n_gpu_layers, s.device, load_mtp=self._own_head)
        n_ctx = s.n_ctx or min(self.model.n_ctx_train, N_CTX_DEFAULT)
        self.n_threads = s.n_threads or usable_cores()
        drafting = self.plan.drafter != "none"
        types = cache_type(s.cache_type_k).id, cache_type(s.cache_type_v).id
        n_rollback = self.draft_max if drafting else 0
        self.target = self._context(self.model, n_ctx, types, n_rollback=n_rollback)
        off = Controller(0)
        lookups = [NgramDrafter(N_MAX)] if self.plan.ngram_first else []
        engine = Engine(
            target=self.target,
            drafter=self._drafter(),
            controller=off,
            before=[Arm(lookup, off) for lookup in lookups],
            chain=s.chain,
            rng=self.rng,
            prompter=Prompter(self.plan.target, self.model),
            n_keep=self._n_keep(),
            draft_max=n_rollback,
        )
        self.engine = self.unlearned(engine, self.draft_max, s.draft_min)

    def unlearned(self, engine: Engine, draft_max: int, draft_min: int) -> Engine:
        """The engine with controllers that know only what the files let expect."""
        ledger = Ledger(draft_max + 1)

        def controller(drafter: Drafter) -> Controller:
            n_max = min(draft_max, drafter.n_max)
            cost, acceptance = self.plan.expected(drafter.name, self.settings.chain.temp)
            return Controller(
                n_max, min(draft_min, n_max), cost=cost, acceptance=acceptance, ledger=ledger
            )

        return replace(
            engine,
            controller=Controller(0) if engine.drafter is None else controller(engine.drafter),
            before=[replace(arm, controller=controller(arm.drafter)) for arm in engine.before],
        )

    def _n_keep(self) -> int | None:
        """Tokens that a context shift keeps at the start, None without shifts."""
        if not self.settings.context_shift:
            return None
        if not self.target.can_shift:
            raise UsageError(
                f"llama.cpp cannot shift the context of {self.plan.target.architecture} models",
                where="--context-shift",
                hint="a larger -c lasts longer",
            )
        return min(self.settings.n_keep + self.model.adds_bos, self.target.n_ctx - 4)

    @property
    def _own_head(self) -> bool:
        return self.plan.drafter == "mtp" and self.plan.draft is None

    def _model(
        self, path: Path, n_gpu_layers: int, device: Sequence[str], *, load_mtp: bool
    ) -> Model:
        model = Model(
            path,
            n_gpu_layers=n_gpu_layers,
            load_mtp=load_mtp,
            devices=device_array(device),
            split_mode=split_mode_id(self.settings.split_mode, device),
        )
        self._stack.callback(model.close)
        return model

    def _context(
        self,
        model: Model,
        n_ctx: int,
        types_kv: tuple[int, int],
        *,
        n_rollback: int = 0,
        mtp_of: Context | None = None,
    ) -> Context:
        context = Context(
            model,
            n_ctx=n_ctx,
            n_threads=self.n_threads,
            n_rollback=n_rollback,
            mtp_of=mtp_of,
            types_kv=types_kv,
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
            device = s.device_draft or s.device
            model = self._model(path, s.n_gpu_layers_draft, device, load_mtp=kind == "mtp")
        types = cache_type(s.cache_type_k_draft).id, cache_type(s.cache_type_v_draft).id
        if kind == "draft":
            context = self._context(model, self.target.n_ctx, types)
            return ModelDrafter(context, self.model.n_vocab, s.draft_p_min)
        context = self._context(model, self.target.n_ctx, types, mtp_of=self.target)
        return MtpDrafter(context, self.target, s.draft_p_min)

    def reply(
        self,
        messages: Sequence[dict[str, str]] | str,
        n_predict: int,
        *,
        raw: bool = False,
        stop: Sequence[str] = (),
        chain: Chain | None = None,
        seed: int | None = None,
    ) -> Reply:
        """Answer the messages (roles system, user, assistant), or continue a raw prompt.

        The reply ends before the first of the `stop` strings. `chain` and `seed` are for this one
        reply instead of the session's own.
        """
        rng = self.rng if seed is None else Random(seed)
        engine = replace(self.engine, chain=chain or self.settings.chain, rng=rng)
        ids = engine.prompter.prompt(messages, raw=raw)
        while engine.n_keep is not None and len(ids) > self.target.n_ctx:
            # As a reply would have shifted it, so that its cache still serves.
            n_discard = shift_length(self.target.n_ctx, engine.n_keep)
            del ids[engine.n_keep : engine.n_keep + n_discard]
        if len(ids) >= self.target.n_ctx and engine.n_keep is None:
            raise UsageError(
                f"the prompt has {len(ids)} tokens, the context holds {self.target.n_ctx}",
                where="-c",
                hint="raise -c, shorten the prompt or let --context-shift shorten it",
            )
        self.target.rewind(min(common_prefix(self.target.tokens, ids), len(ids) - 1))
        engine.new_reply()
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
