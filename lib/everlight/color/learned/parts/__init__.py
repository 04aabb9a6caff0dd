"""Parts that several trained estimators share."""
