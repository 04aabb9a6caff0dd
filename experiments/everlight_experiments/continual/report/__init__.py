"""Reports of strategies on benchmarks: summary, tables, pictures, published numbers."""
