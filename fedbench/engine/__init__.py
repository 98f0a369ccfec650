"""The execution of clients' work: looped, vectorised or compiled."""
