"""The pages in docs/ and the README: their commands are ones we have, their figures the code's."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gguftools.cli import commands
from gguftools.speculative.ledger import ALLOWANCE_EARNED, ALLOWANCE_START
from scripts.article import page
from tests.commands import gguftools

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
# The log of development quotes commands of earlier days; cli.md is generated from the code.
PAGES = [ROOT / "README.md", *(p for p in sorted(DOCS.glob("*.md"))
         if p.name not in ("log.md", "cli.md", "house.md"))]  # fmt: skip
_FENCE = re.compile(r"^```(?:sh|console)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"`(gguftools [^`\n]+)`")
_LINK = re.compile(r"\]\(([^)#\s]+)\)")
# Placeholders in running text: `gguftools completion SHELL`.
_ELLIPSIS = re.compile(r"\.\.\.|\u2026|\[")


def quoted(page_path: Path) -> Iterator[str]:
    """Every command line that a page shows."""
    text = page_path.read_text(encoding="utf-8")
    for block in _FENCE.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            command = line.removeprefix("$ ").strip()
            if command.startswith("gguftools "):
                yield command
            elif "| gguftools " in command:
                yield command[command.index("| gguftools ") + 2 :]
    for command in _INLINE.findall(text):
        if not _ELLIPSIS.search(command):
            yield command


def words(command: str) -> list[str]:
    """The arguments, without comments, redirections and what follows a pipe."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|><&;")
    lexer.whitespace_split = True
    taken: list[str] = []
    for word in lexer:
        if set(word) <= set("|><&;"):
            break
        taken.append(word)
    return taken[1:]


def check(arguments: list[str]) -> None:
    """UsageError where a verb or an option is not there; what files hold is not looked at."""
    command: click.Command = commands
    ctx = click.Context(command, info_name="gguftools")
    args = list(arguments)
    while isinstance(command, click.Group):
        name, found, args = command.resolve_command(ctx, args)
        assert found is not None, name
        command = found
        ctx = click.Context(command, info_name=name, parent=ctx)
    parser = command.make_parser(ctx)
    options, _, _ = parser.parse_args(args=list(args))
    for option in command.get_params(ctx):
        if isinstance(option, click.Option) and option.name in options and not option.is_flag:
            option.type_cast_value(ctx, options[option.name])


COMMANDS = [(path.name, command) for path in PAGES for command in quoted(path)]


@pytest.mark.parametrize(("where", "command"), COMMANDS, ids=lambda value: str(value)[:60])
def test_a_command_in_the_pages_is_one_that_we_have(where: str, command: str) -> None:
    arguments = words(command)
    if arguments and not arguments[0].startswith("-"):
        check(arguments)


def test_the_pages_quote_commands_and_a_wrong_one_is_noticed() -> None:
    names = [where for where, _ in COMMANDS]
    assert names.count("tutorial.md") > 20
    assert names.count("README.md") > 5
    with pytest.raises(click.UsageError):
        check(words("gguftools run model.gguf --no-such-option"))
    with pytest.raises(click.UsageError):
        check(words("gguftools run model.gguf --draft-max many"))
    with pytest.raises(click.UsageError):
        check(words("gguftools no-such-verb model.gguf"))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in _LINK.findall(path.read_text(encoding="utf-8")):
        assert target.startswith("http") or (path.parent / target).exists(), target


EXPLAINED = re.compile(
    r"^```console\n\$ (gguftools explain tests/logs/\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL
)


def test_what_the_tutorial_shows_of_explain_is_what_it_says() -> None:
    shown = EXPLAINED.findall((DOCS / "tutorial.md").read_text(encoding="utf-8"))
    assert len(shown) == 2
    for command, output in shown:
        verb, path = words(command)
        assert gguftools(verb, path).stdout == output


def test_the_page_on_the_controller_states_the_promise_of_the_code() -> None:
    text = (DOCS / "controller.md").read_text(encoding="utf-8")
    promise = f"at most {ALLOWANCE_EARNED:.0%} longer than plain decoding plus {ALLOWANCE_START:g}"
    assert promise in text


def test_the_tables_of_the_article_are_those_of_its_script() -> None:
    """If not: python -m scripts.article."""
    assert page() == (DOCS / "article.md").read_text(encoding="utf-8")


def test_the_picture_fetches_nothing() -> None:
    svg = (DOCS / "chat-terminal.svg").read_text(encoding="utf-8")
    assert "@font-face" not in svg
    assert "url(http" not in svg
    assert len(svg) < 60_000
