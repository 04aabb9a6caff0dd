"""Settings of single methods: given on the command line, or published."""
