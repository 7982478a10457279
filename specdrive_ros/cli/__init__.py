"""The command line: parses, calls, prints. One module a command; `commands.py` lists them."""
