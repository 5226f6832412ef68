"""Command line: progress on stderr, results on stdout, `--json` for programs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from minigibbs._version import __version__
from minigibbs.cli.commands.demo import demo
from minigibbs.cli.commands.explain import explain
from minigibbs.cli.commands.infer import infer
from minigibbs.cli.commands.learn import learn
from minigibbs.cli.commands.maximize import maximize
from minigibbs.cli.commands.repair import repair
from minigibbs.cli.commands.report import report
from minigibbs.cli.commands.reproduce import reproduce
from minigibbs.cli.commands.resume import resume
from minigibbs.cli.commands.sample import sample
from minigibbs.errors import MinigibbsError
from minigibbs.system.text import printable

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Sampling, inference and learning for large discrete graphical models.",
)
for _command in (demo, infer, maximize, learn, repair, sample, resume, explain, reproduce, report):
    app.command()(_command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"minigibbs {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; print an error of the user as one line on stderr, and exit with 2."""
    try:
        app()
    except (MinigibbsError, OSError) as error:
        typer.echo(f"error: {printable(error)}", err=True)
        sys.exit(2 if isinstance(error, MinigibbsError) else 1)
