"""The command line: options and messages, output folders, pages, user code, and its own subcommands."""
