"""The gallery: examples as pages and notebooks; `make gallery` updates pictures and output.

An example is a file of examples/. The first line of its docstring is the title, the rest is the
text. It prints its findings and draws `NAME.png` in the current folder. `# %%` begins a new cell of
the notebook.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).parent
FOLDER = DOCS / "gallery"  # for pictures and printed output of examples
# Examples that are shown first; all others follow by name.
FIRST = ["photograph", "who_is_who", "rna_family", "many_chains", "spin_glass", "dirty_table"]


class Example(NamedTuple):
    """A script of the gallery."""

    path: Path
    title: str  # without the full stop
    text: str
    code: str  # without the docstring

    @property
    def picture(self) -> Path:
        """The picture that it draws."""
        return FOLDER / f"{self.path.stem}.png"

    @property
    def printed(self) -> Path:
        """The file of its printed output."""
        return FOLDER / f"{self.path.stem}.txt"


def examples() -> list[Example]:
    """Return all examples, in the order of the gallery."""
    found = {path.stem: path for path in sorted((DOCS.parent / "examples").glob("*.py"))}
    return [read(found[name]) for name in FIRST] + [
        read(path) for name, path in found.items() if name not in FIRST
    ]


def read(path: Path) -> Example:
    """Read the parts of an example."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    title, _, text = (ast.get_docstring(tree) or "").partition("\n")
    code = "\n".join(source.split("\n")[tree.body[0].end_lineno :])
    return Example(path, title.rstrip("."), text.strip(), code.strip() + "\n")


def page(example: Example) -> str:
    """Return an example as a page of the site, with its picture."""
    name = example.path.stem
    if not (example.picture.exists() and example.printed.exists()):
        sys.exit(f"examples/{name}.py has no picture yet: make gallery EXAMPLES={name}")
    return "\n\n".join(
        [
            f"# {example.title}",
            example.text,
            f"![{example.title}]({name}.png)",
            f"```python\n{example.code}```",
            f"It prints\n\n```text\n{example.printed.read_text(encoding='utf-8')}```",
            f"[The script]({name}.py){{download}} · [as a notebook]({name}.ipynb){{download}}",
        ]
    )


def cards() -> str:
    """Return all examples with their pictures, for the page of the gallery."""
    made = [
        f'<a href="{e.path.stem}/"><img src="{e.path.stem}.png" alt=""><br>{e.title}</a>'
        for e in examples()
    ]
    return '<div class="gallery">\n' + "\n".join(made) + "\n</div>\n"


def notebook(example: Example) -> str:
    """Return an example as a notebook."""
    cells = [_cell("markdown", f"# {example.title}\n\n{example.text}")]
    cells += [_cell("code", part) for part in re.split(r"^# %%.*\n", example.code, flags=re.M)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    book = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    return json.dumps(book, indent=1, ensure_ascii=False) + "\n"


def _cell(kind: str, text: str) -> dict[str, object]:
    cell: dict[str, object] = {"cell_type": kind, "metadata": {}, "source": text.strip()}
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def main(names: list[str]) -> None:
    """Run the named examples, or all; store their pictures and output."""
    FOLDER.mkdir(exist_ok=True)
    for example in examples():
        if names and example.path.stem not in names:
            continue
        begun = time.monotonic()
        command = [sys.executable, example.path.resolve()]
        run = subprocess.run(command, cwd=FOLDER, check=True, stdout=subprocess.PIPE, text=True)
        example.printed.write_text(run.stdout, encoding="utf-8")
        print(f"{example.path.stem}: {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
