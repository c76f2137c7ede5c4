"""Draw docs/terminal.svg, the README's picture: `python docs/draw_terminal.py`."""

from pathlib import Path

from rich.console import Console

import piste
from piste.evaluation.report import terminal_report

TEXT = "A gripping film with a weak, silly ending."


def main() -> None:
    """Explain one sentence with the embedded model and keep what the terminal shows."""
    study = piste.explain("builtin:sentiment", TEXT, surrogates=("lime", "shap", "slalom"))
    with Path("/dev/null").open("w") as nowhere:
        console = Console(record=True, width=84, file=nowhere)
        console.print(terminal_report(study))
    svg = console.export_svg(title=f'piste explain "{TEXT}"')
    Path(__file__).with_name("terminal.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main()
