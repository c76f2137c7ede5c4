"""``python -m piste`` is the ``piste`` command."""

from piste.cli import main

main()
