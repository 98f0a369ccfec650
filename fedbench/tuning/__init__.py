"""Tuning: hyper-parameters searched method by method, by a stated rule; for users and the papers."""
