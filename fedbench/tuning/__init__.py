"""Tuning: a search for each method's hyper-parameters by a stated rule, for users and the papers."""
