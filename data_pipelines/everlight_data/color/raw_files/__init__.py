"""Raw files and photographs: their tags, mosaics and levels, and corrected copies of them."""
