"""The execution of clients' work: looped, vectorised or compiled, of one run or of several together."""
