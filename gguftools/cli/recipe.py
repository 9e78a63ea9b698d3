"""`gguftools recipe`: pairs that others found, to look at, to check, to run and to take along."""

from __future__ import annotations

import re
import sys

import click

from gguftools.cli import render
from gguftools.cli.contract_recipe import RecipeExportJSON
from gguftools.cli.engine_options import ReplyOptions
from gguftools.cli.fetch import fetch
from gguftools.cli.options import Number, color_option, json_option
from gguftools.cli.progress import progress
from gguftools.cli.recipe_run import engine_of, files_of_pair, prompt_of, run_json
from gguftools.cli.recipe_text import (
    checks_json,
    list_json,
    print_checks,
    print_list,
    print_recipe,
    recipe_json,
)
from gguftools.cli.reply import opened_session, stats_line, stream
from gguftools.errors import GGUFToolsError
from gguftools.recipes import find_recipe, load_recipe, recipe_paths
from gguftools.recipes.check import check_recipe, once_unreachable
from gguftools.recipes.export import SYSTEMS, export_recipe
from gguftools.recipes.export_llama import ours_only
from gguftools.recipes.exported import Deployment
from gguftools.recipes.files import total_bytes

_ADDRESS = re.compile(r"(?:[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:]+\]):[0-9]{1,5}")


class Address(click.ParamType[str]):
    """HOST:PORT."""

    name = "host:port"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not _ADDRESS.fullmatch(value):
            self.fail(f"{value!r} is not HOST:PORT.", param, ctx)
        return value


@click.group(short_help="Pairs that others found.")
def recipe() -> None:
    """Pairs that are known: which files, which settings, what they brought on which machine.

    A recipe comes with gguftools, lies in the folder recipes of gguftools in your configuration
    (~/.config/gguftools/recipes), or is any file that `pair -o` or `tune` wrote.

    \b
    Examples:
      gguftools recipe list
      gguftools recipe show qwen3.6-27b-mtp
      gguftools recipe check
      gguftools recipe run smollm2-demo -p "Why is the sky blue?"
      gguftools recipe export llama-3.3-70b-draft-1b --for vllm --gpus 4
    """


@recipe.command("list", short_help="All recipes.")
@json_option
@color_option
def list_(as_json: bool) -> int:
    """List the recipes that came with gguftools and your own.

    \b
    Examples:
      gguftools recipe list
      gguftools recipe list --json | jq -r '.recipes[].name'
    """
    recipes, broken = {}, {}
    for path in recipe_paths().values():
        try:
            recipes[path] = load_recipe(path)
        except GGUFToolsError as err:
            broken[path] = err.what
    if as_json:
        render.json_object(list_json(recipes, broken))
    else:
        print_list(recipes, broken)
    return 0


@recipe.command(short_help="All that one says.")
@click.argument("name")
@json_option
@color_option
def show(name: str, as_json: bool) -> int:
    """Show the recipe NAME, which may also be a file.

    \b
    Examples:
      gguftools recipe show glm-4.5-air-mtp
      gguftools recipe show mine.toml --json
    """
    path = find_recipe(name)
    found = load_recipe(path)
    if as_json:
        render.json_object(recipe_json(found, path))
    else:
        print_recipe(found, path)
    return 0


@recipe.command(short_help="Are its files right, and do they fit?")
@click.argument("names", metavar="[NAME|FILE]...", nargs=-1)
@json_option
@color_option
def check(names: tuple[str, ...], as_json: bool) -> int:
    """Check recipes: their text, their files and whether the pair drafts. All without a NAME.

    Files that are here are compared with their sha256; of those on the Hub only headers are read.
    Offline that is said to be not checked.

    Exit code 0 if all is right, 1 if something is wrong, 3 if something could not be checked.

    \b
    Examples:
      gguftools recipe check
      gguftools recipe check smollm2-demo
      gguftools recipe check mine.toml --json
    """
    paths = [find_recipe(name) for name in names] or list(recipe_paths().values())
    known = set(recipe_paths().values())
    opened = once_unreachable(fetch)
    checks = []
    with progress("checking") as done:
        for i, path in enumerate(paths):
            done(i, len(paths))
            # A bar of its own would cut into this one.
            checks.append(check_recipe(path, opened, lambda *_: None, own_name=path in known))
    if as_json:
        render.json_object(checks_json(checks))
    else:
        print_checks(checks)
    verdicts = {each.verdict for each in checks}
    return 1 if "wrong" in verdicts else 3 if "not checked" in verdicts else 0


@recipe.command(short_help="Answer a prompt with it.")
@click.argument("name")
@click.option("-p", "--prompt", help="What to answer.  [default: the recipe's first prompt]")
@click.option(
    "-n", "--predict", "--n-predict", "n_predict", type=Number(int, 1, 1 << 24),
    help="Most tokens to write.  [default: the recipe's]",
)  # fmt: skip
@click.option(
    "--temp", "--temperature", "temp", type=Number(float, 0, 1000),
    help="Temperature.  [default: the recipe's]",
)  # fmt: skip
@click.option(
    "-c", "--ctx-size", "n_ctx", type=Number(int, 0, 1 << 24),
    help="Tokens of context.  [default: the recipe's, else the model's own]",
)  # fmt: skip
@click.option("-s", "--seed", type=Number(int, 0, (1 << 32) - 1), help="Seed of the sampling.")
@click.option("--show-drafts", is_flag=True, help="Colour the tokens that were drafted.")
@click.option(
    "--stats/--no-stats", default=None, help="End with a line of numbers.  [default: on a terminal]"
)
@json_option
@color_option
def run(
    name: str,
    prompt: str | None,
    n_predict: int | None,
    temp: float | None,
    n_ctx: int | None,
    seed: int | None,
    show_drafts: bool,
    stats: bool | None,
    as_json: bool,
) -> int:
    """Answer one prompt with the recipe NAME, as `gguftools run` does with its settings.

    Files that are not here are downloaded from the Hub, and compared with their sha256.

    \b
    Examples:
      gguftools recipe run smollm2-demo
      gguftools recipe run qwen3.6-27b-mtp -p "Write a haiku." --stats
      gguftools recipe run mine.toml --json
    """
    found = load_recipe(find_recipe(name))
    ours_only(found)
    text = prompt_of(found, prompt)
    files = files_of_pair(found)
    how = ReplyOptions(n_predict or found.settings.n_predict, (), None, None, show_drafts)
    options = engine_of(found, files, temp=temp, n_ctx=n_ctx, seed=seed)
    with opened_session(files.target, options) as session:
        reply = session.reply([{"role": "user", "content": text}], how.n_predict)
        stream(reply, how, show=not as_json)
        if as_json:
            render.json_object(run_json(files, options, reply, session.drafter_name))
        if sys.stderr.isatty() if stats is None else stats:
            render.aside(stats_line(reply.report, session.drafter_name))
    return 130 if reply.stop_reason == "cancelled" else 0


@recipe.command(short_help="The same pair for another system.")
@click.argument("name")
@click.option(
    "--for", "system", type=click.Choice(list(SYSTEMS)), required=True, help="Who is to run it."
)
@click.option("--gpus", type=Number(int, 0, 64), help="GPUs on each machine.")
@click.option("--nodes", type=Number(int, 1, 64), default=1, show_default=True, help="Machines.")
@click.option(
    "--rpc", type=Address(), multiple=True,
    help="An rpc-server of llama.cpp on another machine.  [repeatable]",
)  # fmt: skip
@click.option("-c", "--ctx-size", "n_ctx", type=Number(int, 1, 1 << 24), help="Tokens of context.")
@click.option(
    "--memory-fraction", type=Number(float, 0.01, 1.0),
    help="Share of the GPU's memory (vllm, sglang).",
)  # fmt: skip
@json_option
def export(
    name: str,
    system: str,
    gpus: int | None,
    nodes: int,
    rpc: tuple[str, ...],
    n_ctx: int | None,
    memory_fraction: float | None,
    as_json: bool,
) -> int:
    """Write the recipe NAME as a command or a file for another system, with what to know.

    Exit code 1 with the reason if that system cannot draft with the pair.

    \b
    Examples:
      gguftools recipe export qwen3.6-27b-mtp --for llama-server
      gguftools recipe export gemma-4-31b-assistant --for ollama > Modelfile
      gguftools recipe export llama-3.3-70b-draft-1b --for vllm --gpus 4 --memory-fraction 0.9
      gguftools recipe export glm-4.5-air-mtp --for llama-server --rpc 10.0.0.2:50052
    """
    found = load_recipe(find_recipe(name))
    n_bytes = total_bytes(found, fetch) if system == "wsl2" else None
    deployment = Deployment(gpus, nodes, rpc, n_ctx, memory_fraction, n_bytes)
    made = export_recipe(found, system, deployment)
    if as_json:
        render.json_object(
            RecipeExportJSON(
                schema="gguftools.recipe-export/1",
                name=found.name,
                system=made.system,
                version=made.version,
                text=made.text,
                notes=list(made.notes),
            )
        )
    else:
        click.echo(made.full)
    return 0
