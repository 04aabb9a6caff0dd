"""Methods: strategies with names, arguments and sources, and the choice of a hyper-parameter."""
