"""Parts that all data sets share: record, labelled images, preparation, and loading once."""
