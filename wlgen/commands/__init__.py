"""One module a command: parse, call one function, print, exit. Heavy imports happen inside."""
