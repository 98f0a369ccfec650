"""Claims of papers: the evidence that kept results give, the tests that judge it, the ledger of verdicts."""
