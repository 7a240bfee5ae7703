"""The risk function of a session behind HTTP: books that stay, quotes that move, figures computed once."""
