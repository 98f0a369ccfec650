"""What `fedbench.runs.metrics` has, under the names that it had before."""

from fedbench.runs.metrics import COLUMN as COLUMN
from fedbench.runs.metrics import LEVELS as LEVELS
from fedbench.runs.metrics import reason_to_stop as reason_to_stop
from fedbench.runs.metrics import rounds_to as rounds_to
