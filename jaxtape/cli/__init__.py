"""The kit of the command line: options and messages, output folders, pages, user code, `bench`, `cache`."""
