"""What the fork server of `hydra/launcher=processes` imports, so that its workers need not. Nothing else
imports this module: signals sent to all processes of a job do not end it before its workers."""

import atexit
import os
import signal

from fedbench.machine import Loading

Loading.keeps = True
with Loading():
    from fedbench.runs import run
    from fedbench.sweeps import pool

__all__ = ["pool", "run"]

atexit.register(os._exit, 0)  # whoever waits for its output does not wait until its modules are taken apart
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGHUP})  # `pool.prepare` has blocked them
