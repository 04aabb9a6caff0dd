"""Parts that strategies share: none of them is a method of its own."""
