"""From the words of a command line to a configuration: the only room that knows Hydra's inside. No torch."""
