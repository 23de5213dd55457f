"""Shapes of traffic: lengths, popularity, arrivals, traces; every draw is a function of the stream alone.

Draws use integers and `decimal` only, never the C library's floating point, whose last digit differs
between machines.
"""
