"""`python -m minigibbs`: the command line."""

from minigibbs.cli.entry import main

main()
