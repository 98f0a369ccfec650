"""Sweeps: planning their jobs, running them through any Hydra launcher, and collecting their tables."""
