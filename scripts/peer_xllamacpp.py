"""The native llama.cpp server of xllamacpp, driven over pipes by bench_engine.

Run by an interpreter that has xllamacpp (pip install xllamacpp, in an environment of its own).
argv[1] is a JSON object {"target", "draft", "mtp", "n_max", "threads", "ctx"}; every line on stdin
is {"prompt": token ids, "n", "sampling"}, every line on stdout
{"tokens_per_second", "n_tokens", "n_draft", "n_accepted"}.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import xllamacpp


def main() -> None:
    want = json.loads(sys.argv[1])
    params = xllamacpp.CommonParams()
    params.model.path = want["target"]
    params.n_ctx, params.n_parallel = want["ctx"], 1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = want["threads"]
    params.verbosity = -1
    kinds = xllamacpp.common_speculative_type
    if want["mtp"]:
        params.load_mtp = True
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_MTP]
    elif want["draft"]:
        params.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
        params.speculative.draft.mparams.path = want["draft"]
        params.speculative.draft.cpuparams.n_threads = want["threads"]
    params.speculative.draft.n_max = want["n_max"]
    server = xllamacpp.Server(params)
    print(json.dumps({"build": str(xllamacpp.BUILD_INFO)}), flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps(_answer(server, asked)), flush=True)


def _answer(server: Any, asked: dict[str, Any]) -> dict[str, Any]:
    request = {"prompt": asked["prompt"], "n_predict": asked["n"], "cache_prompt": False}
    request |= asked["sampling"]
    reply = server.handle_completions(request)
    reply = json.loads(reply) if isinstance(reply, str | bytes) else reply
    timings = reply["timings"]
    return {
        "tokens_per_second": timings["predicted_per_second"],
        "n_tokens": timings["predicted_n"],
        "n_draft": timings.get("draft_n", 0),
        "n_accepted": timings.get("draft_n_accepted", 0),
    }


if __name__ == "__main__":
    main()
