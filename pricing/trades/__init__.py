"""What a row of a book means: the kinds of trade, their contracts, the book."""
