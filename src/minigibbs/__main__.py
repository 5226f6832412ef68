"""The command line, as `python -m minigibbs`."""

from minigibbs.cli.entry import main

main()
