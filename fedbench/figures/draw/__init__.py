"""Drawing: tables as pictures of print size."""
