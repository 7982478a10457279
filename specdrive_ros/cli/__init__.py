"""The command line: parses, calls, prints. One module per command; `commands.py` lists them."""
