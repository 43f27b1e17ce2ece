"""Reports: a study, or a comparison of studies, from the ledger as one HTML page."""
