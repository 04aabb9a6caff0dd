"""What data sets share: their record, labelled images, preparation, and loading once."""
