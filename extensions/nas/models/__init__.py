"""Models with choices: the classes to write them with, ``build`` and ``supernet``, the dry run."""
