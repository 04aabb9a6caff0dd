"""What runs are read by: the report, its pictures and tables, export and the list of runs."""
