"""Methods: strategies with names, arguments and papers, and the choice of a hyper-parameter."""
