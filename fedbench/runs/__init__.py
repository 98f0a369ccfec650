"""One run: its problem, its loop of server updates, and the files that it writes."""
