"""The configuration: its types, its checks, and the identity of a run that follows from it. No torch."""
