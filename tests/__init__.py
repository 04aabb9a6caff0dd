"""Tests, comparisons with other code, and speed; a package, so that no installed one hides it."""
