"""`python -m fedbench` is the command `fedbench`."""

import sys

from fedbench.cli import main

sys.exit(main())
