"""Output of finished runs: reports with pictures and tables, exports, the list of runs."""
