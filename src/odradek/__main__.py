"""`python -m odradek`: the command line, where the console script is not on the path."""

from odradek.cli import main

if __name__ == "__main__":
    main(prog_name="odradek")
