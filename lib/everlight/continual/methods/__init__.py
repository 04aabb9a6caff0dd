"""Methods: strategies with names, arguments and publications, and the choice of a hyper-parameter."""
