"""Lay out the site's pages in build/docs, where any builder of Markdown can read them.

The pages of docs/, CONTRIBUTING and similar files, and benchmark tables are copied. Each chapter of
the reference and each example of the gallery gets a generated page. Links become links of the site,
names in backticks become links to the reference, and formulas become MathML. build/mkdocs.yml is
mkdocs.yml with every page in its navigation.
"""

from __future__ import annotations

import itertools
import json
import posixpath
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import yaml
from latex2mathml.converter import convert
from typer.main import get_command

from minigibbs.cli.main import app

DOCS = Path(__file__).parent
ROOT = DOCS.parent
STAGE = ROOT / "build" / "docs"
sys.path.insert(0, str(DOCS))

import build  # noqa: E402
import gallery  # noqa: E402
from docstrings import linked  # noqa: E402

RESULTS = "benchmarks/results"
OUTSIDE = ["CONTRIBUTING.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md", "SECURITY.md"]
OUTSIDE += sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / RESULTS).iterdir())
LINK = re.compile(r"(\]\()(?!\w+:|#)([^)#\s]+)")
TABLE = re.compile(r"^<!-- table: (\w+)(?:, (.+?))? -->$", re.MULTILINE)
PEERS = re.compile(r"^<!-- peers: (\w+) -->$", re.MULTILINE)
_WIDTH = 76  # characters per line of a block of code that are visible without scrolling
FENCE = re.compile(r"(^```.*?^```)", re.MULTILINE | re.DOTALL)
FORMULA = re.compile(
    r"\$\$(.+?)\$\$|(?<![\\\w$`])\$(?=\S)([^$`\n]+?)(?<=\S)\$(?![\w$`])", re.DOTALL
)


def main() -> None:
    """Write the pages and the configuration, replacing earlier ones."""
    shutil.rmtree(STAGE, ignore_errors=True)
    ignored = shutil.ignore_patterns("*.py", "__pycache__", "*.md", "*.txt")
    shutil.copytree(DOCS, STAGE, ignore=ignored)
    for name, text in pages().items():
        path = STAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(finished(text, name), encoding="utf-8")
    for name in OUTSIDE:
        if not name.endswith(".md"):
            shutil.copyfile(ROOT / name, STAGE / name)
    for example in gallery.examples():
        shutil.copyfile(example.path, STAGE / "gallery" / example.path.name)
        book = STAGE / "gallery" / f"{example.path.stem}.ipynb"
        book.write_text(gallery.notebook(example), encoding="utf-8")
    (STAGE.parent / "mkdocs.yml").write_text(json.dumps(configuration(), indent=1))


def pages() -> dict[str, str]:
    """Return every page by its path on the site, whether stored or generated."""
    found = {path.relative_to(DOCS).as_posix(): path for path in DOCS.rglob("*.md")}
    found |= {name: ROOT / name for name in OUTSIDE if name.endswith(".md")}
    written = {name: path.read_text(encoding="utf-8") for name, path in found.items()}
    chapters = "".join(f"* [{name}]({_chapter_page(name)})\n" for name in build.CHAPTERS)
    written["reference.md"] += chapters
    written["gallery.md"] += gallery.cards()
    written["command_line.md"] += _commands()
    written |= {_chapter_page(name): _chapter(name) for name in build.CHAPTERS}
    written |= {f"gallery/{e.path.stem}.md": gallery.page(e) for e in gallery.examples()}
    return {name: _wide(name) + text for name, text in written.items()}


def _wide(name: str) -> str:
    """Return front matter that hides the side column of a page where it would be empty."""
    hidden = "navigation" if name == "README.md" else "toc" if name.startswith("gallery") else ""
    return f"---\nhide: [{hidden}]\n---\n\n" if hidden else ""


def configuration() -> dict[str, Any]:
    """Return mkdocs.yml with every page in its navigation."""
    base = re.sub(r"!ENV \[.*?\]", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    sections = {name: page for entry in yaml.safe_load(base)["nav"] for name, page in entry.items()}
    named = {page for pages in sections.values() for page in pages}
    found = sorted(path.name for path in DOCS.glob("*.md"))
    sections["How-to"] += [name for name in found if name not in named]
    sections["Gallery"] += [f"gallery/{example.path.stem}.md" for example in gallery.examples()]
    sections["Reference"] += [_chapter_page(chapter) for chapter in build.CHAPTERS]
    tables = [name for name in OUTSIDE if name.startswith(RESULTS) and name.endswith(".md")]
    sections["How fast"].append({"All tables": tables})
    notes = sorted(f"adr/{path.name}" for path in DOCS.glob("adr/*.md"))
    sections["Contributing"].append({"Design notes": notes})
    nav = [{name: page} for name, page in sections.items()]
    return {"INHERIT": "../mkdocs.yml", "docs_dir": "docs", "site_dir": "../site", "nav": nav}


def finished(markdown: str, uri: str) -> str:
    """A page as the site has it: tables put in, links turned, formulas set."""
    parts = FENCE.split(PEERS.sub(_peers, TABLE.sub(_table, markdown)))
    parts[::2] = [_formulas(_names(_links(part, uri))) for part in parts[::2]]
    return "".join(parts)


def _formulas(markdown: str) -> str:
    """Convert formulas to MathML, which browsers show without scripts; dollars in code stay."""

    def set_formula(found: re.Match[str]) -> str:
        block = found[1] is not None
        math = convert((found[1] or found[2]).strip(), display="block" if block else "inline")
        # in a span, since a line that begins with <math> would become a block
        return f"\n<div>{math}</div>\n" if block else f"<span>{math}</span>"

    return FORMULA.sub(set_formula, markdown)


def _chapter_page(chapter: str) -> str:
    return f"reference/{chapter.lower().replace(' ', '-')}.md"


def _chapter(chapter: str) -> str:
    names = build.CHAPTERS[chapter] + build.INSIDE.get(chapter, [])
    every = itertools.chain(*([name, *build.inside_module(name)] for name in names))
    return "\n\n".join([f"# {chapter}", *map(_entry, every)]) + "\n"


def _entry(name: str) -> str:
    """Return the entry of a public name, with its public members, including inherited ones."""
    members = json.dumps(build.MEMBERS.get(name.split(".")[-1]) or False)
    options = f"    options:\n      members: {members}\n      inherited_members: {members}\n"
    return f"::: minigibbs.{name}\n{options}"


def _commands() -> str:
    """Return the help of every command, as a terminal shows it."""
    parts = []
    for name, command in get_command(app).commands.items():
        context = command.context_class(
            command, info_name=f"minigibbs {name}", terminal_width=_WIDTH, max_content_width=_WIDTH
        )
        parts.append(f"## {name}\n\n```text\n{command.get_help(context).strip()}\n```\n")
    return "\n".join(parts)


def _links(markdown: str, uri: str) -> str:
    """Convert links of the repository to links of the site."""
    here = posixpath.dirname(uri if uri in OUTSIDE else f"docs/{uri}")

    def turned(found: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, found[2]))
        if target == RESULTS:
            target = "docs/fast.md"
        if target.startswith("examples"):
            target = target.replace("examples", "docs/gallery", 1).replace(".py", ".md")
            target = target + ".md" if target == "docs/gallery" else target
        if target.startswith("docs/"):
            target = target.removeprefix("docs/")
        elif target not in OUTSIDE:
            return found[0]
        return found[1] + posixpath.relpath(target, posixpath.dirname(uri) or ".")

    return LINK.sub(turned, markdown)


def _names(markdown: str) -> str:
    """Convert public names to links to the reference, except in headings."""
    lines = markdown.split("\n")
    return "\n".join(line if line.startswith("#") else linked(line) for line in lines)


def _rows(name: str) -> list[list[str]]:
    """The rows of a table of benchmarks, its heads first. Rows of peers keep their indentation."""
    text = (ROOT / RESULTS / f"{name}.md").read_text(encoding="utf-8")
    return [line[2:].strip("|").split(" | ") for line in text.split("\n") if line.startswith("| ")]


def _markdown(rows: list[list[str]], name: str) -> str:
    """A table in Markdown, and when it was measured; indented rows belong to the one above."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    cells = ([re.sub(r"^ +", "&emsp;", cell.rstrip()) for cell in row] for row in lines)
    table = "\n".join("| " + " | ".join(row) + " |" for row in cells)
    text = (ROOT / RESULTS / f"{name}.md").read_text(encoding="utf-8")
    date, version = re.search(r"^(\d{4}-\d\d-\d\d), .*(minigibbs [\w.]+\w)", text, re.M).groups()
    return f"{table}\n\n*Measured on {date} with {version}.*"


def _table(found: re.Match[str]) -> str:
    """Rows of a table of benchmarks."""
    heads, *rows = _rows(found[1])
    wanted = [row for row in rows if re.search(found[2] or "", row[0].strip())]
    if not wanted:
        raise ValueError(f"{found[1]}.md has no row that matches {found[2]!r}")
    return _markdown([heads, *wanted], found[1])


def _peers(found: re.Match[str]) -> str:
    """A table of benchmarks as model, library, time, ratio: its rows belong to the model above."""
    model, lines = "", [["model", "library", "time per update", "times ours"]]
    for what, measured in _rows(found[1])[1:]:
        name, _, rest = what.strip().partition(", and how many times ours")
        times = re.fullmatch(r"([\d.]+ ns), ([\d.]+)", measured.strip())
        if rest == "" and times and what != what.lstrip():
            library = {"systematic": "minigibbs, systematic scan", "dwave": "dwave-samplers"}
            lines.append([model, library.get(name, name), times[1], times[2]])
        elif ":" in what and re.fullmatch(r"[\d.]+ ns", measured.strip()):
            model = what.strip().rpartition(":")[0]
            lines.append([model, "**minigibbs**", measured, "1"])
    if len(lines) < 3:
        raise ValueError(f"{found[1]}.md has no rows of peers")
    return _markdown(lines, found[1])


if __name__ == "__main__":
    main()
