"""Tests; a package, so that no installed one hides it."""
