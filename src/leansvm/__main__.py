"""``python -m leansvm``: the command line if the script is not on the path."""

from leansvm.cli import main

main()
