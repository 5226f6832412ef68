"""Build what is built in the docs: the reference from docstrings, pictures from the tutorial.

`make docs` runs it; nothing is fetched, and it takes seconds.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

import minigibbs as mg
from minigibbs.results import diagnostics, report

DOCS = Path(__file__).parent
PICTURES = DOCS / "images" / "tutorial"

# Every public name in one chapter; a test refuses a name that has none.
CHAPTERS: dict[str, list[str]] = {
    "Describing a model": ["FactorGraph", "Grid", "Domains", "Stats"],
    "Factors": ["Unary", "Potts", "Ising", "Table", "Logical"],
    "Implicit factors": ["Kernel", "PointKernel", "Points", "Complete", "LowRank"],
    "Answers": ["infer", "Answer", "maximize", "Maximum"],
    "Sampling": [
        "sample",
        "sample_until",
        "sample_many",
        "resume",
        "Record",
        "explain",
        "Explanation",
    ],
    "Results": ["Run", "Runs", "Info", "Marginal", "Summary", "load"],
    "Observables": ["observables"],
    "Samplers": [
        "PoissonGibbs",
        "Gibbs",
        "MGPMH",
        "MinGibbs",
        "DoubleMinGibbs",
        "LocalMinibatchGibbs",
        "PoissonMH",
        "TunaMH",
        "Tempering",
        "BlockGibbs",
        "SwendsenWang",
        "Exact",
        "Sampler",
    ],
    "Energy estimators": [
        "PoissonEstimator",
        "SubsetEstimator",
        "ExactEstimator",
        "CustomEstimator",
        "Estimator",
    ],
    "Files": ["read", "write"],
    "Other libraries": [
        "ising_from_matrix",
        "potts_from_matrix",
        "from_networkx",
        "to_networkx",
        "from_bqm",
        "from_dqm",
        "from_pgmpy",
        "to_pgmpy",
        "interop",
    ],
    "Ready-made models and exact answers": ["models", "theory"],
    "Errors": [
        "MinigibbsError",
        "GraphError",
        "SampleError",
        "FormatError",
        "TooLargeError",
        "StoppedError",
        "MissingDependencyError",
    ],
}
RESULTS: list[Any] = [report.write, diagnostics.rhat, diagnostics.ess]


def reference() -> str:
    """The reference page."""
    parts = [
        "# Reference\n",
        "Every public name, from its docstring; all examples are run by the tests. Made by "
        "`make docs`: edit the docstrings, not this page.\n",
    ]
    for chapter in [*CHAPTERS, "What functions return and take"]:
        parts.append(f"* [{chapter}](#{_anchor(chapter)})")
    for chapter, names in CHAPTERS.items():
        parts.append(f"\n## {chapter}\n")
        parts += [_entry(f"mg.{name}", getattr(mg, name)) for name in names]
    parts.append("\n## What functions return and take\n")
    parts += [_entry(f"{thing.__module__}.{thing.__name__}", thing) for thing in RESULTS]
    return "\n".join(parts).rstrip() + "\n"


def _entry(name: str, thing: Any) -> str:
    if isinstance(thing, ModuleType):
        named = [getattr(thing, member) for member in getattr(thing, "__all__", ())]
        members = [m for m in named if inspect.isfunction(m) or inspect.isclass(m)]
        members = members or [m for m in vars(thing).values() if _belongs(m, thing.__name__)]
        parts = [_entry(f"{name}.{member.__name__}", member) for member in members]
        return "\n".join([f"### `{name}`\n", _prose(thing.__doc__), *parts])
    signature = "" if _is_abstract(thing) else _signature(thing)
    parts = [f"### `{name}`\n"]
    if signature:
        parts.append(f"```python\n{name.rsplit('.', 1)[-1]}{signature}\n```\n")
    parts += [_prose(_own_doc(thing)), _fields(thing), *_methods(thing)]
    return "\n".join(part for part in parts if part)


def _belongs(member: Any, module: str) -> bool:
    public = inspect.isfunction(member) and not member.__name__.startswith("_")
    return public and member.__module__ == module


def _is_abstract(thing: Any) -> bool:
    return inspect.isclass(thing) and (
        inspect.isabstract(thing) or issubclass(thing, Exception) or thing is mg.Run
    )


def _own_doc(thing: Any) -> str:
    """A docstring, but not the signature that dataclasses make up."""
    text = inspect.getdoc(thing) or ""
    return "" if text.startswith(f"{thing.__name__}(") else text


def _signature(thing: Any) -> str:
    """Names and defaults; types are in the text where they matter."""
    plain = []
    star = False
    for parameter in inspect.signature(thing).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            plain.append("*")
            star = True
        default = "" if parameter.default is parameter.empty else f"={_default(parameter.default)}"
        plain.append(f"{parameter.name}{default}")
    flat = f"({', '.join(plain)})"
    if len(flat) <= 80:
        return flat
    return (
        "(\n"
        + textwrap.fill(", ".join(plain), 90, initial_indent="    ", subsequent_indent="    ")
        + "\n)"
    )


def _default(value: Any) -> str:
    return value.__name__ if callable(value) and hasattr(value, "__name__") else repr(value)


def _fields(thing: Any) -> str:
    """The fields of a dataclass or named tuple, with the comments beside them."""
    has_fields = hasattr(thing, "__dataclass_fields__") or hasattr(thing, "_fields")
    if not inspect.isclass(thing) or not has_fields or "Parameters\n" in _own_doc(thing):
        return ""
    pattern = re.compile(r"^    ([a-z]\w*): ([^#=]+?)(?: = [^#]+?)?(?:  # (.*))?$", re.MULTILINE)
    lines = []
    for name, kind, comment in pattern.findall(inspect.getsource(thing).split("    def ")[0]):
        if "ClassVar" not in kind:
            lines.append(f"* `{name}`: `{kind}`" + (f"; {_escape(comment)}" if comment else ""))
    return "\n".join(lines) + "\n" if lines else ""


def _methods(thing: Any) -> list[str]:
    """Public methods and properties of a class, but for those that its bases promise."""
    if not inspect.isclass(thing):
        return []
    parts = []
    for name, member in vars(thing).items():
        target = getattr(member, "func", None) or getattr(member, "fget", None)
        called = inspect.isfunction(member) or isinstance(member, classmethod | staticmethod)
        promised = any(hasattr(base, name) for base in thing.__bases__)
        if name.startswith("_") or promised or not (called or target):
            continue
        doc = inspect.getdoc(target or member)
        if not doc:
            continue
        shown = f"{name}{_without_self(getattr(thing, name))}" if called else name
        parts.append(f"**`.{shown}`**\n\n{_prose(doc)}")
    return parts


def _without_self(method: Any) -> str:
    text = _signature(method)
    return (
        re.sub(r"\s+", " ", re.sub(r"^\(\s*self(, )?", "(", text))
        .replace("( ", "(")
        .replace(" )", ")")
    )


def _prose(doc: str | None) -> str:
    """A docstring in Markdown: parameters as a list, examples as code."""
    lines = inspect.cleandoc(doc or "").split("\n")
    out: list[str] = []
    section, in_example = "", False
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if following and set(following) == {"-"}:
            section = line
            continue
        if line and set(line) == {"-"}:
            continue
        if line.startswith(">>>") and not in_example:
            out.append("```pycon")
            in_example = True
        if in_example and not line:
            out.append("```")
            in_example = False
        if in_example:
            out.append(line)
        elif section == "Parameters" and line:
            indented = line.startswith("    ")
            out.append(f"  {_escape(line.strip())}" if indented else f"* `{line}`:")
        else:
            out.append(_escape(line))
    return "\n".join([*out, "```"] if in_example else out) + "\n"


def _escape(text: str) -> str:
    """Keep Markdown from seeing emphasis or tags in formulas; code in backticks stays."""
    parts = text.split("`")
    return "`".join(
        re.sub(r"([*<])", r"\\\1", part) if k % 2 == 0 else part for k, part in enumerate(parts)
    )


def _anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def tutorial_blocks() -> list[tuple[str, str]]:
    """The tutorial's code, and what it is said to print."""
    text = (DOCS / "tutorial.md").read_text(encoding="utf-8")
    return re.findall(r"```python\n(.*?)```\n(?:```text\n(.*?)```\n)?", text, re.DOTALL)


def run_tutorial(folder: Path) -> list[str]:
    """Run the tutorial's code in a folder; returns what each block printed."""
    names: dict[str, Any] = {}
    printed = []
    with contextlib.chdir(folder):
        for code, _ in tutorial_blocks():
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(code, "tutorial.md", "exec"), names)
            printed.append(out.getvalue())
    return printed


def photograph(page: Path, picture: Path) -> None:
    """A picture of a page, where there is a browser to take it with."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is not None:
        options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1000,1500"]
        command = [browser, *options, f"--screenshot={picture}", page.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=60)


def main() -> None:
    """Write the reference, and the tutorial's pictures."""
    (DOCS / "reference.md").write_text(reference(), encoding="utf-8")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for (code, expected), printed in zip(tutorial_blocks(), run_tutorial(folder), strict=True):
            if printed != expected:
                sys.exit(f"the tutorial should print\n{expected}but prints\n{printed}for\n{code}")
        photograph(folder / "people.html", folder / "report.png")
        PICTURES.mkdir(parents=True, exist_ok=True)
        for picture in folder.glob("*.png"):
            shutil.copyfile(picture, PICTURES / picture.name)
    print(f"wrote {os.path.relpath(DOCS / 'reference.md')} and pictures")


if __name__ == "__main__":
    main()
