"""Models with choices: what users write them with, the model of a configuration, the dry run."""
