"""Reading: the files of runs and sweeps as typed tables. Needs neither torch nor matplotlib."""
